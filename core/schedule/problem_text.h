/* SPDX-License-Identifier: Apache-2.0
 * One line of text that names a problem: what logs print and every tool reads back. */
#ifndef TESSERA_CORE_SCHEDULE_PROBLEM_TEXT_H
#define TESSERA_CORE_SCHEDULE_PROBLEM_TEXT_H

#include "core/base/text.h"

#include <stdbool.h>
#include <tessera/attention.h>

/* The grammar, words in any order after the first, separated by blanks:
 *
 *     fwd | bwd                    which pass
 *     b2 hq32 hk8 q4096 k4096      batch (or sequences), heads, lengths (upper bounds with lens)
 *     d128 dv64                    head_dim, head_dim_v (default: head_dim)
 *     f32 | f16 | bf16 | e4m3 | e5m2    storage type; of=f32 for another output type
 *     causal topleft window=L,R    masks; window bounds inclusive, -1 for none
 *     scale=X softcap=X            score
 *     alibi sink bias[=f16]        with slopes, sinks, a bias tensor; bias axes 0-broadcast by
 *     biasbcast=bhij               naming them
 *     splits=N                     shares of the columns
 *     lensq=3,4,0x5 lensk=...      packed sequences: their lengths; NxC repeats length N C times
 *     usedq=... usedk=...          used lengths
 *     page=16                      keys in pages of that size
 *     index=i64                    index arrays of 64 bits
 *     deterministic invariant tf32 spread    flags
 *     gap=N                        rows left unused behind every packed sequence (0)
 *     layout=bhsd | bshd | strided | sparse  how tensors lie in memory (bshd); strided is drawn
 *     fill=NAME seed=N             what is in them (normal, 1)
 *
 * layout, fill, gap and seed say how a test or a benchmark makes its data; the library ignores
 * them. */

enum { TESS_LINE_RUNS = 64 };

/* A list of lengths, run-length coded so that 80,000 equal sequences stay one word. */
typedef struct tess_lengths {
    int64_t value[TESS_LINE_RUNS];
    int64_t count[TESS_LINE_RUNS];
    int32_t runs; /* 0: not given */
} tess_lengths;

enum {
    TESS_LAYOUT_BSHD = 0,
    TESS_LAYOUT_BHSD = 1,
    TESS_LAYOUT_STRIDED = 2,
    TESS_LAYOUT_SPARSE = 3
};

/* A problem as its words. tess_line_default() first, then set what differs. */
typedef struct tess_line {
    bool backward;
    int64_t batch, heads_q, heads_kv, seqlen_q, seqlen_k, head_dim, head_dim_v;
    tess_dtype dtype, o_dtype; /* o_dtype NONE: like dtype */
    uint32_t mask;             /* TESS_MASK_... */
    int64_t window_left, window_right;
    bool scale_is_set;
    float softmax_scale, softcap;
    uint32_t bias; /* TESS_BIAS_... */
    tess_dtype bias_dtype;
    uint32_t bias_broadcast; /* bit 0: b, 1: h, 2: i, 3: j */
    uint32_t flags;          /* TESS_DETERMINISTIC ... without TESS_SCALE_IS_SET */
    int64_t splits;
    tess_lengths lens_q, lens_k, used_q, used_k;
    int64_t page_size; /* 0: not paged */
    tess_dtype index_dtype;
    int64_t gap;
    int32_t layout; /* TESS_LAYOUT_... */
    char fill[24];
    uint64_t seed;
} tess_line;

/* fwd b1 hq1 hk1 q1 k1 d64 f32, everything else off. */
void tess_line_default(tess_line *line);

/* Reads a line. On failure returns TESS_INVALID, leaves *out_line untouched and appends to `why`,
 * which may be NULL, which word is wrong, what it is and what is accepted. Missing: hk defaults to
 * hq, k to q, dv to d; lens give b, q and k where those words are absent; the rest as
 * tess_line_default(). Numbers are read and written with a point in every locale. What the words
 * mean together is left to the plan, except where they contradict each other as text: lists of
 * different counts, used lengths above the lengths, page= with lensk=. */
tess_status tess_line_read(const char *text, tess_line *out_line, tess_text *why);

/* Appends the line, words in the order of the grammar, without words that would only repeat a
 * default; b, hq, q, k, d and the element type are always named unless lists of lengths give them.
 * tess_line_read() gives back the same struct. */
void tess_line_write(const tess_line *line, tess_text *out_text);

/* Number of sequences in a list, the length of sequence `index`, the longest and the sum. */
int64_t tess_lengths_count(const tess_lengths *lengths);
int64_t tess_lengths_at(const tess_lengths *lengths, int64_t index);
int64_t tess_lengths_max(const tess_lengths *lengths);
int64_t tess_lengths_total(const tess_lengths *lengths);

/* Adds `count` equal lengths behind the others, in the last run when that has the same value;
 * false when the list is full. */
bool tess_lengths_add(tess_lengths *lengths, int64_t value, int64_t count);

#endif
