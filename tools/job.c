/* SPDX-License-Identifier: Apache-2.0
 * What tessera run is asked to do: options, tensors from files, the descriptor made from both. */
#include "tools/job.h"

#include "tests/kit/number.h"
#include "tools/npy.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WHY_SIZE = 2048, MOST_NUMBERS = 65536 };

/* ---- Tensors --------------------------------------------------------------------------------- */

bool tool_job_view(const tool_job *job, const tool_tensor *tensor, tess_layout *out_layout)
{
    const int first = tensor->rank - 3; /* without a batch the others begin at axis 0 */
    const int seqlen = job->is_by_head ? first + 1 : first;
    const int heads = job->is_by_head ? first : first + 1;
    const int dim = first + 2;

    if (tensor->rank != 3 && tensor->rank != 4)
        return false;
    *out_layout = (tess_layout){.batch = first ? tensor->shape[0] : 1,
                                .seqlen = tensor->shape[seqlen],
                                .heads = tensor->shape[heads],
                                .head_dim = tensor->shape[dim],
                                .batch_stride = first ? tensor->stride[0] : 0,
                                .seqlen_stride = tensor->stride[seqlen],
                                .head_stride = tensor->stride[heads],
                                .dim_stride = tensor->stride[dim],
                                .dtype = tensor->dtype};
    return true;
}

static int read_file_tensor(const tool_job *job, const char *name, tool_tensor *out)
{
    char why[WHY_SIZE];
    tess_text text = tess_text_in(why, sizeof why);

    if (!tool_safetensors_read(&job->file, name, out, &text))
        return tool_fail(TOOL_USAGE, "%s", why);
    return TOOL_OK;
}

static int read_npy(const char *option, const char *path, tool_tensor *out)
{
    char why[WHY_SIZE];
    tess_text text = tess_text_in(why, sizeof why);

    if (!tool_npy_read(path, out, &text))
        return tool_fail(TOOL_USAGE, "--%s: %s", option, why);
    return TOOL_OK;
}

/* Numbers typed on the command line, as fp32 or int32. */
static int read_list(const char *option, const char *text, bool as_index, tool_tensor *out)
{
    const size_t room = strlen(text) / 2 + 1;
    double *const reals = tool_allocate(room * sizeof *reals, "a list of numbers");
    int64_t *const integers = tool_allocate(room * sizeof *integers, "a list of numbers");
    size_t count = 0;

    if (reals && integers)
        count = as_index ? tool_args_integers(option, text, integers, room)
                         : tool_args_reals(option, text, reals, room);
    memset(out, 0, sizeof *out);
    if (count) {
        out->dtype = as_index ? TESS_I64 : TESS_F32;
        out->rank = 1;
        out->shape[0] = (int64_t)count;
        out->size = count * tess_dtype_size(out->dtype);
        snprintf(out->name, sizeof out->name, "--%s", option);
        tool_tensor_strides(out, false);
        out->data = malloc(out->size);
    }
    for (size_t i = 0; out->data && i < count; i++)
        tess_number_store(out->dtype, (char *)out->data + i * tess_dtype_size(out->dtype),
                          as_index ? (double)integers[i] : reals[i]);
    free(reals);
    free(integers);
    return out->data ? TOOL_OK : count ? TOOL_BROKEN : TOOL_USAGE;
}

/* A small tensor named on the command line: an .npy file, a tensor of the input file, or the
 * numbers themselves. */
static int read_named(const tool_job *job, const char *option, const char *text, bool as_index,
                      tool_tensor *out)
{
    if (tool_ends_with(text, ".npy"))
        return read_npy(option, text, out);
    if (job->has_file && tool_safetensors_has(&job->file, text))
        return read_file_tensor(job, text, out);
    if (text[0] == '-' || text[0] == '.' || text[0] == '+' || (text[0] >= '0' && text[0] <= '9'))
        return read_list(option, text, as_index, out);
    return tool_fail(TOOL_USAGE,
                     "--%s is \"%s\"; it takes an .npy file, the name of a tensor of the input "
                     "file%s, or numbers separated by commas",
                     option, text, job->has_file ? ", which has none of that name" : "");
}

/* Makes every element of a tensor packed and of another type; refuses numbers that type cannot
 * hold. */
static int convert(tool_tensor *tensor, const char *option, tess_dtype dtype)
{
    tool_tensor made = *tensor;
    int64_t count, index[TOOL_RANK] = {0};

    if (!tool_tensor_count(tensor->shape, tensor->rank, &count))
        return TOOL_USAGE;
    made.dtype = dtype;
    made.size = (size_t)count * tess_dtype_size(dtype);
    made.data = tool_allocate(made.size, option);
    if (!made.data)
        return TOOL_BROKEN;
    tool_tensor_strides(&made, false);
    for (int64_t i = 0; i < count; i++) {
        int64_t at = 0;
        double value;

        for (int axis = 0; axis < tensor->rank; axis++)
            at += index[axis] * tensor->stride[axis];
        value = tool_tensor_value(tensor, at);
        if (dtype == TESS_I32 && !(value >= 0 && value <= INT32_MAX && value == floor(value))) {
            free(made.data);
            return tool_fail(TOOL_USAGE, "--%s holds %g; lengths are whole numbers from 0 to %d",
                             option, value, INT32_MAX);
        }
        tess_number_store(dtype, (char *)made.data + i * (int64_t)tess_dtype_size(dtype), value);
        for (int axis = tensor->rank - 1; axis >= 0 && ++index[axis] == tensor->shape[axis]; axis--)
            index[axis] = 0;
    }
    free(tensor->data);
    *tensor = made;
    return TOOL_OK;
}

/* Reads a one-dimensional tensor and brings it to `dtype`. */
static int read_vector(const tool_job *job, const char *option, const char *text, tess_dtype dtype,
                       tool_tensor *out)
{
    int result = read_named(job, option, text, dtype == TESS_I32, out);

    if (result == TOOL_OK)
        result = convert(out, option, dtype);
    return result;
}

static int refuse_shape(const tool_tensor *tensor, const char *option, const char *wanted)
{
    char shape[256];
    tess_text text = tess_text_in(shape, sizeof shape);

    tool_tensor_write_shape(tensor->shape, tensor->rank, &text);
    return tool_fail(TOOL_USAGE, "--%s has shape %s; it takes %s", option, shape, wanted);
}

/* ---- Q, K, V --------------------------------------------------------------------------------- */

static int load_qkv(tool_job *job, const tool_run_options *given)
{
    const char *const files[] = {given->q, given->k, given->v};
    const char *const names[] = {given->q_name ? given->q_name : "q",
                                 given->k_name ? given->k_name : "k",
                                 given->v_name ? given->v_name : "v"};
    static const char *const options[] = {"q", "k", "v"};
    tess_layout *const layouts[] = {&job->desc.q, &job->desc.k, &job->desc.v};

    for (int i = 0; i < 3; i++) {
        tool_tensor *const tensor = &job->input[TOOL_JOB_Q + i];
        const int result = job->has_file ? read_file_tensor(job, names[i], tensor)
                                         : read_npy(options[i], files[i], tensor);

        if (result != TOOL_OK)
            return result;
        if (!tool_job_view(job, tensor, layouts[i]))
            return refuse_shape(
                tensor, options[i],
                job->is_by_head ? "(batch, heads, seqlen, head_dim), or that without the batch"
                                : "(batch, seqlen, heads, head_dim), or that without the batch");
        if (tensor->dtype == TESS_I32 || tensor->dtype == TESS_I64)
            return tool_fail(TOOL_USAGE, "%s holds %s; attention takes f32, f16, bf16 and FP8",
                             options[i], tess_dtype_name(tensor->dtype));
    }
    return TOOL_OK;
}

/* The layout: the flag, else what the file says of itself, else bshd. */
static int choose_layout(tool_job *job, const tool_run_options *given)
{
    const char *note = NULL;
    char shown[64];

    if (given->layout) {
        job->is_by_head = strcmp(given->layout, "bhsd") == 0;
        return TOOL_OK;
    }
    if (job->has_file && !given->no_metadata)
        note = tool_safetensors_note(&job->file, "layout");
    if (!note || strcmp(note, "batch,seqlen,heads,head_dim") == 0 || strcmp(note, "bshd") == 0)
        return TOOL_OK;
    job->is_by_head = strcmp(note, "batch,heads,seqlen,head_dim") == 0 || strcmp(note, "bhsd") == 0;
    if (job->is_by_head)
        return TOOL_OK;
    return tool_fail(
        TOOL_USAGE,
        "the file's metadata says that its layout is \"%s\", which is neither bshd nor "
        "bhsd; say which with --layout",
        tool_printable(note, shown, sizeof shown));
}

static int load_expected(tool_job *job, const tool_run_options *given)
{
    const char *const o_name = given->o_name ? given->o_name : "o";
    const char *const lse_name = given->lse_name ? given->lse_name : "lse";
    int result = TOOL_OK;

    if (given->expect)
        result =
            tool_ends_with(given->expect, ".npy")
                ? read_npy("expect", given->expect, &job->expected_o)
            : job->has_file
                ? read_file_tensor(job, given->expect, &job->expected_o)
                : tool_fail(TOOL_USAGE, "--expect is \"%s\"; it takes an .npy file", given->expect);
    else if (job->has_file && (given->o_name || tool_safetensors_has(&job->file, o_name)))
        result = read_file_tensor(job, o_name, &job->expected_o);
    if (result == TOOL_OK && job->has_file &&
        (given->lse_name || tool_safetensors_has(&job->file, lse_name)))
        result = read_file_tensor(job, lse_name, &job->expected_lse);
    return result;
}

/* ---- Masks and scores ------------------------------------------------------------------------ */

static int set_masks(tool_job *job, const tool_run_options *given)
{
    int64_t window[2];
    const char *note = NULL;

    if (given->causal && given->not_causal)
        return tool_fail(TOOL_USAGE, "--causal and --no-causal exclude each other");
    if (job->has_file && !given->no_metadata)
        note = tool_safetensors_note(&job->file, "causal");
    job->causal_from_file = note && !given->causal && !given->not_causal;
    if (given->causal || (job->causal_from_file && strcmp(note, "true") == 0))
        job->desc.mask |= TESS_MASK_CAUSAL;
    if (given->top_left)
        job->desc.mask |= TESS_MASK_TOP_LEFT;
    if (!given->window)
        return TOOL_OK;
    switch (tool_args_integers("window", given->window, window, 2)) {
    case 2:
        break;
    case 1:
        return tool_fail(TOOL_USAGE,
                         "--window is \"%s\"; it takes two bounds, LEFT,RIGHT, both inclusive, -1 "
                         "for none",
                         given->window);
    default:
        return TOOL_USAGE;
    }
    job->desc.mask |= TESS_MASK_WINDOW;
    job->desc.window_left = window[0];
    job->desc.window_right = window[1];
    return TOOL_OK;
}

static void set_scale(tool_job *job, const tool_run_options *given)
{
    const char *note = NULL;
    double value;
    char *end;

    if (given->scale.is_set) {
        job->desc.softmax_scale = (float)given->scale.value;
        job->desc.flags |= TESS_SCALE_IS_SET;
        return;
    }
    if (job->has_file && !given->no_metadata)
        note = tool_safetensors_note(&job->file, "softmax_scale");
    if (!note)
        return;
    value = strtod(note, &end);
    if (end == note || *end || !isfinite(value))
        return;
    job->scale_from_file = true;
    /* The default by another name need not be a setting of its own in the problem's line. */
    if ((float)value == (float)(1 / sqrt((double)job->desc.q.head_dim)))
        return;
    job->desc.softmax_scale = (float)value;
    job->desc.flags |= TESS_SCALE_IS_SET;
}

/* Slopes of the ALiBi paper: a geometric sequence from 2^(-8/n) on for n heads, n a power of two;
 * for other counts every second slope of twice the next lower power fills up. */
static int make_slopes(tool_tensor *out, int64_t heads)
{
    int64_t power = 1;

    if (heads < 0 || heads > INT32_MAX)
        return tool_fail(TOOL_USAGE, "--alibi: q has %" PRId64 " heads", heads);
    while (power * 2 <= heads)
        power *= 2;
    memset(out, 0, sizeof *out);
    out->dtype = TESS_F32;
    out->rank = 1;
    out->shape[0] = heads;
    out->stride[0] = 1;
    out->size = (size_t)heads * sizeof(float);
    out->data = tool_allocate(out->size, "ALiBi slopes");
    if (!out->data)
        return TOOL_BROKEN;
    for (int64_t head = 0; head < heads; head++) {
        const double exponent = head < power
                                    ? -8.0 * (double)(head + 1) / (double)power
                                    : -4.0 * (double)(2 * (head - power) + 1) / (double)power;

        ((float *)out->data)[head] = (float)exp2(exponent);
    }
    return TOOL_OK;
}

/* Strides of a tensor whose last axes stand for the last of `count` axes; an extent of 1 where the
 * problem has more is broadcast. False when an extent is neither. */
static bool broadcast(const tool_tensor *tensor, const int64_t *extent, int count, int64_t *stride)
{
    if (tensor->rank > count || tensor->rank < 1)
        return false;
    for (int axis = 0; axis < count; axis++) {
        const int own = axis - (count - tensor->rank);

        stride[axis] = 0;
        if (own < 0 || (tensor->shape[own] == 1 && extent[axis] != 1))
            continue;
        if (tensor->shape[own] != extent[axis])
            return false;
        stride[axis] = tensor->stride[own];
    }
    return true;
}

static int set_slopes(tool_job *job, const tool_run_options *given, const int64_t *extent)
{
    tool_tensor *const slopes = &job->input[TOOL_JOB_SLOPES];
    int result;

    if (!given->alibi)
        return TOOL_OK;
    result = strcmp(given->alibi, "auto") == 0
                 ? make_slopes(slopes, extent[1])
                 : read_vector(job, "alibi", given->alibi, TESS_F32, slopes);
    if (result != TOOL_OK)
        return result;
    if (!broadcast(slopes, extent, 2, job->bias.slope_stride))
        return refuse_shape(slopes, "alibi", "(heads) or (batch, heads), or \"auto\"");
    job->bias.present |= TESS_BIAS_ALIBI;
    return TOOL_OK;
}

static int set_bias(tool_job *job, const tool_run_options *given)
{
    const tess_attention_desc *const d = &job->desc;
    const bool is_packed = job->varlen.present & TESS_VARLEN_CU_SEQLENS_Q;
    const bool is_packed_k = job->varlen.present & TESS_VARLEN_CU_SEQLENS_K;
    const int64_t extent[4] = {job->varlen.present ? job->varlen.sequences : d->q.batch, d->q.heads,
                               is_packed ? job->varlen.max_seqlen_q : d->q.seqlen,
                               is_packed_k ? job->varlen.max_seqlen_k : d->k.seqlen};
    tool_tensor *const tensor = &job->input[TOOL_JOB_BIAS];
    tool_tensor *const sink = &job->input[TOOL_JOB_SINK];
    int result = set_slopes(job, given, extent);

    if (result == TOOL_OK && given->sink) {
        result = read_vector(job, "sink", given->sink, TESS_F32, sink);
        if (result == TOOL_OK && !broadcast(sink, &extent[1], 1, &job->bias.sink_stride))
            result = refuse_shape(sink, "sink", "one number per query head, or one for all");
        job->bias.present |= TESS_BIAS_SINK;
    }
    if (result == TOOL_OK && given->bias) {
        result = read_named(job, "bias", given->bias, false, tensor);
        if (result == TOOL_OK && !broadcast(tensor, extent, 4, job->bias.tensor_stride))
            result = refuse_shape(tensor, "bias",
                                  "(batch, heads, seqlen_q, seqlen_k) with 1 for a broadcast axis "
                                  "and leading axes left out");
        job->bias.present |= TESS_BIAS_TENSOR;
        job->bias.tensor_dtype = tensor->dtype;
    }
    if (job->bias.present) {
        job->bias.struct_size = sizeof job->bias;
        job->desc.bias = &job->bias;
    }
    return result;
}

/* ---- Lengths --------------------------------------------------------------------------------- */

static int32_t length_at(const tool_tensor *tensor, int64_t index)
{
    return ((const int32_t *)tensor->data)[index];
}

/* Longest sequence of prefix sums that must rise from 0 to `total`; -1 after a complaint. */
static int64_t longest(const tool_tensor *sums, const char *option, int64_t total)
{
    const int64_t last = sums->shape[0] - 1;
    int64_t most = 0;

    for (int64_t i = 0; i < last; i++) {
        const int64_t length = (int64_t)length_at(sums, i + 1) - length_at(sums, i);

        if (length < 0) {
            tool_fail(TOOL_USAGE, "--%s falls from %d to %d at place %" PRId64, option,
                      length_at(sums, i), length_at(sums, i + 1), i + 1);
            return -1;
        }
        most = length > most ? length : most;
    }
    if (length_at(sums, last) > total) {
        tool_fail(TOOL_USAGE, "--%s ends at %d but the tensor has %" PRId64 " rows", option,
                  length_at(sums, last), total);
        return -1;
    }
    return most;
}

/* One of the four index arrays. `bit` is its TESS_VARLEN_ bit, `extra` 1 for prefix sums. */
static int set_lengths(tool_job *job, const char *option, const char *text, int which, uint32_t bit,
                       int64_t extra)
{
    tool_tensor *const tensor = &job->input[which];
    int result;

    if (!text)
        return TOOL_OK;
    result = read_vector(job, option, text, TESS_I32, tensor);
    if (result != TOOL_OK)
        return result;
    if (tensor->rank != 1 || tensor->shape[0] < extra)
        return refuse_shape(tensor, option,
                            extra ? "sequences + 1 prefix sums" : "one length per sequence");
    if (job->varlen.present && job->varlen.sequences != tensor->shape[0] - extra)
        return tool_fail(TOOL_USAGE,
                         "--%s is for %" PRId64 " sequences, the options before for %" PRId64,
                         option, tensor->shape[0] - extra, job->varlen.sequences);
    job->varlen.sequences = tensor->shape[0] - extra;
    job->varlen.present |= bit;
    return TOOL_OK;
}

static int check_used(const tool_job *job, int which, const char *option, int64_t most)
{
    const tool_tensor *const tensor = &job->input[which];

    for (int64_t i = 0; tensor->data && i < tensor->shape[0]; i++)
        if (length_at(tensor, i) > most)
            return tool_fail(TOOL_USAGE, "--%s holds %d but no sequence is longer than %" PRId64,
                             option, length_at(tensor, i), most);
    return TOOL_OK;
}

static int set_varlen(tool_job *job, const tool_run_options *given)
{
    tess_varlen *const varlen = &job->varlen;
    int result = set_lengths(job, "cu-seqlens-q", given->cu_seqlens_q, TOOL_JOB_CU_Q,
                             TESS_VARLEN_CU_SEQLENS_Q, 1);

    if (result == TOOL_OK)
        result = set_lengths(job, "cu-seqlens-k", given->cu_seqlens_k, TOOL_JOB_CU_K,
                             TESS_VARLEN_CU_SEQLENS_K, 1);
    if (result == TOOL_OK)
        result = set_lengths(job, "seqused-q", given->seqused_q, TOOL_JOB_USED_Q,
                             TESS_VARLEN_SEQUSED_Q, 0);
    if (result == TOOL_OK)
        result = set_lengths(job, "seqused-k", given->seqused_k, TOOL_JOB_USED_K,
                             TESS_VARLEN_SEQUSED_K, 0);
    if (result != TOOL_OK || !varlen->present)
        return result;
    varlen->struct_size = sizeof *varlen;
    varlen->index_dtype = TESS_I32;
    if (given->cu_seqlens_q)
        varlen->max_seqlen_q =
            longest(&job->input[TOOL_JOB_CU_Q], "cu-seqlens-q", job->desc.q.seqlen);
    if (given->cu_seqlens_k)
        varlen->max_seqlen_k =
            longest(&job->input[TOOL_JOB_CU_K], "cu-seqlens-k", job->desc.k.seqlen);
    if (varlen->max_seqlen_q < 0 || varlen->max_seqlen_k < 0)
        return TOOL_USAGE;
    varlen->host_cu_seqlens_q = job->input[TOOL_JOB_CU_Q].data;
    varlen->host_cu_seqlens_k = job->input[TOOL_JOB_CU_K].data;
    varlen->host_seqused_q = job->input[TOOL_JOB_USED_Q].data;
    varlen->host_seqused_k = job->input[TOOL_JOB_USED_K].data;
    job->desc.varlen = varlen;
    result = check_used(job, TOOL_JOB_USED_Q, "seqused-q",
                        given->cu_seqlens_q ? varlen->max_seqlen_q : job->desc.q.seqlen);
    if (result == TOOL_OK)
        result = check_used(job, TOOL_JOB_USED_K, "seqused-k",
                            given->cu_seqlens_k ? varlen->max_seqlen_k : job->desc.k.seqlen);
    return result;
}

/* ---- The whole job --------------------------------------------------------------------------- */

static int set_output(tool_job *job, const tool_run_options *given)
{
    const tess_layout *const q = &job->desc.q;
    const int64_t shape[4] = {q->batch, q->seqlen, q->heads, job->desc.v.head_dim};
    tess_dtype dtype = q->dtype;
    int64_t count;

    /* Extents of empty tensors are bounded by no file. */
    if (!tool_tensor_count(shape, 4, &count) || count > INT64_MAX / 8)
        return tool_fail(TOOL_USAGE, "the output of q and v would have more elements than fit in "
                                     "memory");

    /* FP8 is too narrow for a result. */
    if (dtype == TESS_E4M3 || dtype == TESS_E5M2)
        dtype = TESS_F32;
    if (given->out_dtype)
        dtype = strcmp(given->out_dtype, "f16") == 0    ? TESS_F16
                : strcmp(given->out_dtype, "bf16") == 0 ? TESS_BF16
                                                        : TESS_F32;
    job->desc.o =
        job->is_by_head
            ? tess_layout_by_head(dtype, q->batch, q->seqlen, q->heads, job->desc.v.head_dim)
            : tess_layout_packed(dtype, q->batch, q->seqlen, q->heads, job->desc.v.head_dim);
    return TOOL_OK;
}

static int open_input(tool_job *job, const char *path, const tool_run_options *given)
{
    char why[WHY_SIZE];
    tess_text text = tess_text_in(why, sizeof why);

    if (path && (given->q || given->k || given->v))
        return tool_fail(TOOL_USAGE,
                         "takes a .safetensors file or --q, --k and --v, but was given both \"%s\" "
                         "and --%s",
                         path,
                         given->q   ? "q"
                         : given->k ? "k"
                                    : "v");
    if (!path && !(given->q && given->k && given->v))
        return tool_fail(TOOL_USAGE,
                         given->q || given->k || given->v
                             ? "--q, --k and --v belong together; --%s is missing"
                             : "needs a .safetensors file, or --q, --k and --v with .npy files",
                         !given->q   ? "q"
                         : !given->k ? "k"
                                     : "v");
    if (!path)
        return TOOL_OK;
    if (tool_ends_with(path, ".npy"))
        return tool_fail(TOOL_USAGE,
                         "\"%s\" is an .npy file, which holds one tensor: give three "
                         "with --q, --k and --v",
                         path);
    if (!tool_safetensors_open(path, &job->file, &text))
        return tool_fail(TOOL_USAGE, "%s", why);
    job->has_file = true;
    return TOOL_OK;
}

int tool_job_load(tool_job *job, const char *path, const tool_run_options *given)
{
    int result;

    memset(job, 0, sizeof *job);
    job->desc.struct_size = sizeof job->desc;
    result = open_input(job, path, given);
    if (result == TOOL_OK)
        result = choose_layout(job, given);
    if (result == TOOL_OK)
        result = load_qkv(job, given);
    if (result == TOOL_OK)
        result = load_expected(job, given);
    if (result == TOOL_OK)
        result = set_masks(job, given);
    if (result == TOOL_OK)
        result = set_varlen(job, given);
    if (result == TOOL_OK)
        result = set_bias(job, given);
    if (result == TOOL_OK)
        result = set_output(job, given);
    if (result != TOOL_OK)
        return result;
    set_scale(job, given);
    job->desc.softcap = (float)given->softcap.value;
    job->desc.num_splits = given->splits.value;
    job->desc.flags |= (given->deterministic ? TESS_DETERMINISTIC : 0) |
                       (given->batch_invariant ? TESS_BATCH_INVARIANT : 0) |
                       (given->tf32 ? TESS_ALLOW_TF32 : 0) |
                       (given->spread ? TESS_ALLOW_NONFINITE_SPREAD : 0);
    return TOOL_OK;
}

static int allocate(tool_tensor *tensor)
{
    int64_t count;

    if (!tool_tensor_count(tensor->shape, tensor->rank, &count) || count > INT64_MAX / 8)
        return tool_fail(TOOL_USAGE, "%s has more elements than fit in memory", tensor->name);
    tensor->size = (size_t)count * tess_dtype_size(tensor->dtype);
    tool_tensor_strides(tensor, false);
    tensor->data = tool_allocate(tensor->size, tensor->name);
    return tensor->data ? TOOL_OK : TOOL_BROKEN;
}

int tool_job_allocate(tool_job *job)
{
    const tess_layout *const o = &job->desc.o;
    const int64_t seqlen_heads[2] = {o->seqlen, o->heads};
    const bool is_flat = job->input[TOOL_JOB_Q].rank == 3; /* results have no batch either */
    int axis = 0, result;

    snprintf(job->o.name, sizeof job->o.name, "o");
    snprintf(job->lse.name, sizeof job->lse.name, "lse");
    job->o.dtype = o->dtype;
    job->lse.dtype = TESS_F32;
    if (!is_flat)
        job->o.shape[axis] = job->lse.shape[axis] = o->batch, axis++;
    job->o.shape[axis] = seqlen_heads[job->is_by_head];
    job->o.shape[axis + 1] = seqlen_heads[!job->is_by_head];
    job->o.shape[axis + 2] = o->head_dim;
    job->o.rank = axis + 3;
    job->lse.shape[axis] = o->heads;
    job->lse.shape[axis + 1] = o->seqlen;
    job->lse.rank = axis + 2;
    result = allocate(&job->o);
    return result == TOOL_OK ? allocate(&job->lse) : result;
}

tess_forward_args tool_job_host_args(const tool_job *job)
{
    const tool_tensor *const in = job->input;

    return (tess_forward_args){TESS_STRUCT(tess_forward_args),
                               .q.base = in[TOOL_JOB_Q].data,
                               .k.base = in[TOOL_JOB_K].data,
                               .v.base = in[TOOL_JOB_V].data,
                               .o.base = job->o.data,
                               .lse.base = job->lse.data,
                               .cu_seqlens_q.base = in[TOOL_JOB_CU_Q].data,
                               .cu_seqlens_k.base = in[TOOL_JOB_CU_K].data,
                               .seqused_q.base = in[TOOL_JOB_USED_Q].data,
                               .seqused_k.base = in[TOOL_JOB_USED_K].data,
                               .bias.base = in[TOOL_JOB_BIAS].data,
                               .alibi_slopes.base = in[TOOL_JOB_SLOPES].data,
                               .sink.base = in[TOOL_JOB_SINK].data};
}

void tool_job_release(tool_job *job)
{
    for (int i = 0; i < TOOL_JOB_INPUTS; i++)
        tool_tensor_release(&job->input[i]);
    tool_tensor_release(&job->expected_o);
    tool_tensor_release(&job->expected_lse);
    tool_tensor_release(&job->o);
    tool_tensor_release(&job->lse);
    tool_safetensors_close(&job->file);
}
