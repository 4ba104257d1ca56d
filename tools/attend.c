/* SPDX-License-Identifier: Apache-2.0
 * What one row attends to: the keys of largest weight, with their words when the file has them. */
#include "tools/attend.h"

#include "tests/kit/oracle_row.h"
#include "tools/json.h"

#include <inttypes.h>
#include <stdlib.h>

enum { BAR = 24, WORD_SIZE = 64 };

/* A key of the row. */
typedef struct key {
    int64_t column;
    double weight, score;
} key;

typedef struct attended {
    int64_t batch, head, row;
    int64_t admitted;
    double lse, entropy, sink_weight;
    key *keys; /* largest weight first */
    size_t count, shown;
    const char *tokens; /* NULL: the file has none */
} attended;

static int compare_keys(const void *a, const void *b)
{
    const key *left = a, *right = b;

    if (left->weight != right->weight)
        return left->weight > right->weight ? -1 : 1;
    return left->column < right->column ? -1 : left->column > right->column;
}

/* Word number `index` of a text of words separated by single blanks; "" when there are fewer. */
static const char *word_at(const char *text, int64_t index, char *data, size_t size)
{
    char raw[WORD_SIZE];

    while (text && index > 0 && (text = strchr(text, ' ')) != NULL) {
        text++;
        index--;
    }
    snprintf(raw, sizeof raw, "%.*s", text ? (int)strcspn(text, " ") : 0, text ? text : "");
    return tool_printable(raw, data, size);
}

/* Columns a word takes on a terminal: bytes that begin a character. */
static int width_of(const char *word)
{
    int width = 0;

    for (; *word; word++)
        width += ((unsigned char)*word & 0xc0) != 0x80;
    return width;
}

/* Rows of a sequence that are computed. */
static int64_t rows_of(const tool_job *job, int64_t sequence)
{
    const int32_t *const used = job->input[TOOL_JOB_USED_Q].data;
    const int32_t *const sums = job->input[TOOL_JOB_CU_Q].data;

    return used ? used[sequence] : sums ? sums[sequence + 1] - sums[sequence] : job->desc.q.seqlen;
}

static int read_place(const tool_job *job, const char *place, attended *out)
{
    const int64_t sequences = job->varlen.present ? job->varlen.sequences : job->desc.q.batch;
    int64_t at[3];

    if (tool_args_integers("explain-row", place, at, 3) != 3)
        return tool_fail(TOOL_USAGE, "--explain-row is \"%s\"; it takes BATCH,HEAD,ROW", place);
    if (at[0] < 0 || at[0] >= sequences || at[1] < 0 || at[1] >= job->desc.q.heads)
        return tool_fail(TOOL_USAGE,
                         "--explain-row is \"%s\"; there are %" PRId64 " sequences and %" PRId64
                         " heads, counted from 0",
                         place, sequences, job->desc.q.heads);
    if (at[2] < 0 || at[2] >= rows_of(job, at[0]))
        return tool_fail(TOOL_USAGE,
                         "--explain-row is \"%s\"; sequence %" PRId64 " has %" PRId64
                         " rows, counted from 0",
                         place, at[0], rows_of(job, at[0]));
    out->batch = at[0];
    out->head = at[1];
    out->row = at[2];
    return TOOL_OK;
}

int tool_attend_check(const tool_job *job, const char *place)
{
    attended a;

    return read_place(job, place, &a);
}

static int gather(const tess_oracle_work *work, attended *out)
{
    out->keys = tool_allocate((size_t)work->count * sizeof *out->keys, "the keys of a row");
    if (!out->keys)
        return TOOL_BROKEN;
    out->count = (size_t)work->count;
    out->lse = work->lse;
    out->sink_weight = work->has_sink ? exp(work->sink - work->lse) : 0;
    for (size_t i = 0; i < out->count; i++) {
        const double weight = work->weight[i] / work->sum;

        out->keys[i] = (key){work->column[i], weight, work->score[i]};
        if (weight > 0)
            out->entropy -= weight * log2(weight);
    }
    qsort(out->keys, out->count, sizeof *out->keys, compare_keys);
    return TOOL_OK;
}

static int compute(const tool_job *job, attended *out)
{
    const tess_forward_args args = tool_job_host_args(job);
    const tess_oracle_inputs inputs = {.q = args.q,
                                       .k = args.k,
                                       .v = args.v,
                                       .cu_seqlens_q = args.cu_seqlens_q,
                                       .cu_seqlens_k = args.cu_seqlens_k,
                                       .seqused_q = args.seqused_q,
                                       .seqused_k = args.seqused_k,
                                       .bias = args.bias,
                                       .alibi_slopes = args.alibi_slopes,
                                       .sink = args.sink};
    tess_oracle_work work;
    int result;

    if (!tess_oracle_begin(&work, &job->desc, &inputs, NULL, false)) {
        tess_oracle_end(&work);
        return tool_fail(TOOL_BROKEN, "no memory for a row in float64");
    }
    tess_oracle_take_sequence(&work, out->batch);
    tess_oracle_take_head(&work, tess_oracle_key_head(&work, out->head));
    tess_oracle_take_row(&work, out->row, out->head);
    result = gather(&work, out);
    tess_oracle_end(&work);
    return result;
}

static json_t *attended_json(const attended *a)
{
    json_t *object = json_object(), *top = json_array();
    char word[WORD_SIZE];

    tool_json_set(object, "batch", json_integer(a->batch));
    tool_json_set(object, "head", json_integer(a->head));
    tool_json_set(object, "row", json_integer(a->row));
    if (a->tokens)
        tool_json_set(object, "token",
                      tool_json_text(word_at(a->tokens, a->row, word, sizeof word)));
    tool_json_set(object, "lse", tool_json_real(a->lse));
    tool_json_set(object, "entropy_bits", tool_json_real(a->entropy));
    tool_json_set(object, "keys", json_integer((json_int_t)a->count));
    for (size_t i = 0; i < a->shown; i++) {
        json_t *one = json_object();

        tool_json_set(one, "column", json_integer(a->keys[i].column));
        tool_json_set(one, "weight", tool_json_real(a->keys[i].weight));
        tool_json_set(one, "score", tool_json_real(a->keys[i].score));
        if (a->tokens)
            tool_json_set(one, "token",
                          tool_json_text(word_at(a->tokens, a->keys[i].column, word, sizeof word)));
        json_array_append_new(top, one);
    }
    tool_json_set(object, "top", top);
    return object;
}

static void print_attended(const attended *a)
{
    char word[WORD_SIZE];
    double rest = 1 - a->sink_weight;

    printf("\nhead %" PRId64 ", row %" PRId64, a->head, a->row);
    if (a->tokens)
        printf(" \"%s\"", word_at(a->tokens, a->row, word, sizeof word));
    printf(": %zu keys, entropy %.2f bits, lse %.4f\n", a->count, a->entropy, a->lse);
    for (size_t i = 0; i < a->shown; i++) {
        const key *const k = &a->keys[i];
        const int filled = (int)(k->weight * BAR + 0.5);

        word_at(a->tokens, k->column, word, sizeof word);
        printf("  %8.4f  %-*.*s  key %-6" PRId64 " %s%*s score %8.3f\n", k->weight, BAR, filled,
               "########################", k->column, word,
               width_of(word) < 14 ? 14 - width_of(word) : 0, "", k->score);
        rest -= k->weight;
    }
    if (a->sink_weight > 0)
        printf("  %8.4f  sink\n", a->sink_weight);
    if (a->count > a->shown)
        printf("  %8.4f  the other %zu keys\n", rest > 0 ? rest : 0, a->count - a->shown);
}

int tool_attend(const tool_job *job, const char *place, int64_t top, json_t *object)
{
    attended a = {.keys = NULL};
    int result = read_place(job, place, &a);

    if (result == TOOL_OK)
        result = compute(job, &a);
    if (result != TOOL_OK)
        return result;
    a.shown = a.count < (size_t)top ? a.count : (size_t)top;
    /* Tokens are of one sequence that is both the queries and the keys. */
    if (job->has_file && job->desc.q.batch == 1 && !job->varlen.present)
        a.tokens = tool_safetensors_note(&job->file, "tokens");
    if (object)
        tool_json_set(object, "explain_row", attended_json(&a));
    else
        print_attended(&a);
    free(a.keys);
    return TOOL_OK;
}
