/* SPDX-License-Identifier: Apache-2.0
 * A progress bar for work that takes longer than a person waits without asking. */
#ifndef TESSERA_TOOLS_PROGRESS_H
#define TESSERA_TOOLS_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tool_progress {
    const char *what; /* "checking" */
    int64_t total;
    double started, shown_at;
    bool is_terminal, is_shown;
} tool_progress;

/* Starts the clock. Nothing is drawn in the first second, nor ever when standard error is no
 * terminal. */
void tool_progress_start(tool_progress *progress, const char *what, int64_t total);

/* Says how much is done; cheap, redraws at most ten times a second. `detail` may be NULL. */
void tool_progress_step(tool_progress *progress, int64_t done, const char *detail);

/* Wipes the bar; before printing anything else, and at the end. */
void tool_progress_clear(tool_progress *progress);

/* Seconds of a clock that never goes back. */
double tool_clock(void);

#endif
