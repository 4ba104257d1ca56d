/* SPDX-License-Identifier: Apache-2.0
 * A progress bar for work that takes longer than a person waits without asking. */
#include "tools/progress.h"

#include <stdio.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { BAR_WIDTH = 24 };

double tool_clock(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int terminal_width(void)
{
    struct winsize size;

    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20)
        return size.ws_col;
    return 80;
}

void tool_progress_start(tool_progress *progress, const char *what, int64_t total)
{
    *progress = (tool_progress){.what = what,
                                .total = total,
                                .started = tool_clock(),
                                .is_terminal = isatty(STDERR_FILENO) == 1};
}

static void draw(tool_progress *progress, int64_t done, double elapsed, const char *detail)
{
    const double share = progress->total > 0 ? (double)done / (double)progress->total : 0;
    const int filled = (int)(share * BAR_WIDTH + 0.5);
    char bar[BAR_WIDTH + 1], line[512];
    int length;

    for (int i = 0; i < BAR_WIDTH; i++)
        bar[i] = i < filled ? '=' : i == filled ? '>' : ' ';
    bar[BAR_WIDTH] = '\0';
    length = snprintf(line, sizeof line, "%s [%s] %3.0f %%", progress->what, bar, 100 * share);
    /* The guess of what is left settles down only after some share is done. */
    if (share > 0.02 && length > 0 && length < (int)sizeof line)
        length += snprintf(line + length, sizeof line - (size_t)length, ", %.0f s left",
                           elapsed / share - elapsed);
    if (detail && length > 0 && length < (int)sizeof line)
        snprintf(line + length, sizeof line - (size_t)length, "  %s", detail);
    /* One column short of the edge, where some terminals wrap. */
    fprintf(stderr, "\r%.*s\033[K", terminal_width() - 1, line);
    fflush(stderr);
}

void tool_progress_step(tool_progress *progress, int64_t done, const char *detail)
{
    double now;

    if (!progress->is_terminal)
        return;
    now = tool_clock();
    if (now - progress->started < 1 || now - progress->shown_at < 0.1)
        return;
    progress->shown_at = now;
    progress->is_shown = true;
    draw(progress, done, now - progress->started, detail);
}

void tool_progress_clear(tool_progress *progress)
{
    if (!progress->is_shown)
        return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
    progress->is_shown = false;
}
