/* SPDX-License-Identifier: Apache-2.0
 * Attention: what is to be computed (descriptors), how (plans), and where (arguments).
 *
 * Q is (batch, seqlen_q, heads_q, head_dim), K is (batch, seqlen_k, heads_kv, head_dim), V is
 * (batch, seqlen_k, heads_kv, head_dim_v), O is (batch, seqlen_q, heads_q, head_dim_v). Query head
 * h reads key head h / (heads_q / heads_kv). The score of row i and column j is, in this order,
 *
 *     s = softmax_scale * dot(q_i, k_j)
 *     s = softcap * tanh(s / softcap)              when softcap > 0
 *     s = s - alibi_slope[b,h] * |i + D - j|       when slopes are given
 *     s = s + bias[b,h,i,j]                        when a bias tensor is given
 *
 * where D = seqlen_k - seqlen_q of that sequence, so that the last row faces the last column, or 0
 * with TESS_MASK_TOP_LEFT. A column is absent from a row unless the causal rule (j <= i + D), the
 * window (i + D - window_left <= j <= i + D + window_right, inclusive) and the lengths all admit
 * it; a score of exactly -infinity makes it absent too. Absent means not there: nothing that an
 * absent element holds, NaN included, reaches the row. Then
 *
 *     LSE_i = log( sum_j exp(s_ij) + exp(sink_h) )    natural logarithm; the sink when given
 *     O_i   = sum_j exp(s_ij - LSE_i) V_j
 *
 * as in "FlashAttention: Fast and Memory-Efficient Exact Attention" (Dao et al., 2022), section
 * 3.1 and algorithm 1. A row with no column gives O = +0 and LSE = -infinity (with a sink: LSE =
 * sink). Scores, softmax, LSE and sums are fp32 for every 16-bit and 32-bit type. */
#ifndef TESSERA_ATTENTION_H
#define TESSERA_ATTENTION_H

#include "device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opaque. One problem bound to one kernel, one schedule and one workspace layout. Immutable: it
 * may be run from many threads on many queues of its device at once. */
typedef struct tess_plan tess_plan;

/* ---- Leaf structs: held by value inside others, frozen for the life of the soname ------------ */

/* Extents and strides of one tensor. Strides are in elements, signed; 0 repeats an element and is
 * legal for inputs only. The stride of an axis of extent 1 or 0 is never used.
 *
 * Packed sequences (see tess_varlen): batch is 1 and seqlen is the total. Paged K and V (see
 * tess_paging): batch is the number of pages and seqlen is the page size. */
typedef struct tess_layout {
    int64_t batch, seqlen, heads, head_dim;                       /* extents, 0 ... 2^31 - 1 */
    int64_t batch_stride, seqlen_stride, head_stride, dim_stride; /* in elements */
    tess_dtype dtype;
    int32_t reserved; /* 0 */
} tess_layout;

/* An input: `base` plus `offset` bytes is element (0,0,0,0). The offset is a multiple of the
 * element's size. On OpenCL base is a cl_mem, elsewhere an address of the plan's device. A tensor
 * without elements may be NULL. */
typedef struct tess_in {
    const void *base;
    int64_t offset;
} tess_in;

/* An output; as tess_in. */
typedef struct tess_out {
    void *base;
    int64_t offset;
} tess_out;

/* Layout with heads beside the head dimension: element (b, s, h, d) at
 * ((b * seqlen + s) * heads + h) * head_dim + d. Checks nothing; the plan does. Threads: any. */
TESS_API tess_layout tess_layout_packed(tess_dtype dtype, int64_t batch, int64_t seqlen,
                                        int64_t heads, int64_t head_dim);

/* Layout with whole heads behind each other: element (b, s, h, d) at
 * ((b * heads + h) * seqlen + s) * head_dim + d. The arguments keep the order of
 * tess_layout_packed(). Checks nothing; the plan does. Threads: any. */
TESS_API tess_layout tess_layout_by_head(tess_dtype dtype, int64_t batch, int64_t seqlen,
                                         int64_t heads, int64_t head_dim);

/* ---- Descriptors: what is to be computed; read when the plan is made; no addresses --------- */

/* Bits of tess_attention_desc.mask; they combine freely. */
enum {
    TESS_MASK_CAUSAL = 1u << 0,  /* column j <= row i + D */
    TESS_MASK_WINDOW = 1u << 1,  /* window_left and window_right hold */
    TESS_MASK_TOP_LEFT = 1u << 2 /* D = 0: row i faces column i */
};

/* Bits of tess_attention_desc.flags. */
enum {
    TESS_DETERMINISTIC = 1u << 0,   /* the same plan on the same device gives the same bits */
    TESS_BATCH_INVARIANT = 1u << 1, /* the bits of a sequence depend on that sequence alone */
    TESS_ALLOW_TF32 = 1u << 2,      /* f32 products may round their inputs to TF32 */
    TESS_ALLOW_NONFINITE_SPREAD = 1u << 3, /* a NaN or Inf may spread within one tile */
    TESS_SCALE_IS_SET = 1u << 4            /* softmax_scale counts even when it is 0 */
};

/* Bits of tess_varlen.present. */
enum {
    TESS_VARLEN_CU_SEQLENS_Q = 1u << 0, /* q, o are packed: batch 1, sequences behind each other */
    TESS_VARLEN_CU_SEQLENS_K = 1u << 1, /* k, v are packed; not with paging */
    TESS_VARLEN_SEQUSED_Q = 1u << 2,    /* only the first seqused_q[b] rows are computed */
    TESS_VARLEN_SEQUSED_K = 1u << 3     /* only the first seqused_k[b] columns exist */
};

/* Sequences of different lengths. Sequence b has rows cu_seqlens_q[b] ... cu_seqlens_q[b+1] - 1 of
 * a packed tensor, or batch entry b of one that is not packed. */
typedef struct tess_varlen {
    size_t struct_size;   /* sizeof(tess_varlen) */
    int64_t sequences;    /* with a tensor that is not packed: its batch (paged K, V excepted) */
    int64_t max_seqlen_q; /* upper bound of every length; needed where rows are packed, else 0 */
    int64_t max_seqlen_k; /* the same for columns; with paging 0 means max_pages * page size, and
                             without seqused_k it is every sequence's length */

    /* Copies in host memory of the arrays named in `present`, or NULL. They let the plan schedule
     * better; the arrays of the arguments decide what is computed. Read when the plan is made. */
    const void *host_cu_seqlens_q, *host_cu_seqlens_k; /* sequences + 1 elements */
    const void *host_seqused_q, *host_seqused_k;       /* sequences elements */

    uint32_t present;       /* TESS_VARLEN_... bits: which arrays the arguments will hold */
    tess_dtype index_dtype; /* of all four arrays: TESS_I32 (also when 0) or TESS_I64 */
} tess_varlen;

/* K and V in pages. The layouts of k and v describe the pool: batch = pages, seqlen = page size.
 * Column j of sequence b is slot j % page size of page table[b * table_stride + j / page size].
 * Table entries past the used length are never read. */
typedef struct tess_paging {
    size_t struct_size;   /* sizeof(tess_paging) */
    int64_t max_pages;    /* columns of the table */
    int64_t table_stride; /* elements from one sequence's row to the next; 0: max_pages */
} tess_paging;

/* Bits of tess_bias.present. */
enum {
    TESS_BIAS_TENSOR = 1u << 0, /* bias[b,h,i,j], any float type, added to the score */
    TESS_BIAS_ALIBI = 1u << 1,  /* slope[b,h], fp32 */
    TESS_BIAS_SINK = 1u << 2    /* sink[h], fp32: one logit per query head, unscaled, uncapped */
};

/* What is added to scores. Strides are in elements; 0 broadcasts. With packed sequences the bias
 * is indexed by the sequence and by the sequence's own i and j. */
typedef struct tess_bias {
    size_t struct_size;       /* sizeof(tess_bias) */
    int64_t tensor_stride[4]; /* b, h, i, j */
    int64_t slope_stride[2];  /* b, h */
    int64_t sink_stride;      /* h */
    uint32_t present;         /* TESS_BIAS_... bits */
    tess_dtype tensor_dtype;  /* of the bias tensor: TESS_F32, TESS_F16 or TESS_BF16 */
} tess_bias;

/* Descale factors of FP8 inputs, fp32: factor of element (b, row, h) at b * stride[0] +
 * h * stride[1] + row / rows_per_block * stride[2]. */
typedef struct tess_scaling {
    size_t struct_size; /* sizeof(tess_scaling) */
    int64_t q_stride[3], k_stride[3], v_stride[3];
    int64_t q_rows_per_block, k_rows_per_block, v_rows_per_block; /* 0: one block */
} tess_scaling;

/* Custom scores and masks as text. Reserved: every backend refuses it for now. */
typedef struct tess_program {
    size_t struct_size; /* sizeof(tess_program) */
    const char *score;  /* expression for the score, or NULL */
    const char *mask;   /* expression for the mask, or NULL */
} tess_program;

/* One attention problem. */
typedef struct tess_attention_desc {
    size_t struct_size; /* sizeof(tess_attention_desc) */

    tess_layout q, k, v; /* one dtype */
    tess_layout o;       /* dtype of q or TESS_F32; must not overlap itself */
    tess_layout lse;     /* all zero: fp32, packed (batch, heads_q, seqlen_q), for packed rows
                            (heads_q, total); else head_dim 1, extents like o, dtype TESS_F32 */

    float softmax_scale; /* 0: 1 / sqrt(head_dim), unless TESS_SCALE_IS_SET. May be negative */
    float softcap;       /* 0: off; not negative */
    uint32_t mask;       /* TESS_MASK_... bits */
    uint32_t flags;      /* TESS_... bits */
    int64_t window_left, window_right; /* with TESS_MASK_WINDOW; negative: no bound */
    int64_t num_splits; /* shares of the columns computed apart and merged; 0: chosen; <= 65536 */

    const tess_varlen *varlen;   /* NULL: every sequence has the layouts' lengths */
    const tess_paging *paging;   /* NULL: k and v are where their layouts say */
    const tess_bias *bias;       /* NULL: none */
    const tess_scaling *scaling; /* FP8 inputs only; NULL: all factors 1 */
    const tess_program *program; /* NULL: none */
} tess_attention_desc;

/* Which gradients are wanted, and their layouts; all zero: like o, q, k, v. */
typedef struct tess_gradient_desc {
    size_t struct_size; /* sizeof(tess_gradient_desc) */
    tess_layout d_o, dq, dk, dv;
    int64_t dbias_stride[4]; /* b, h, i, j of dbias, fp32; over an axis of stride 0 it is a sum */
    uint32_t wanted;         /* TESS_GRADIENT_... bits; no output among them: dq, dk and dv */
    uint32_t reserved;       /* 0 */
} tess_gradient_desc;

/* Bits of tess_gradient_desc.wanted. */
enum {
    TESS_GRADIENT_Q = 1u << 0,
    TESS_GRADIENT_K = 1u << 1,
    TESS_GRADIENT_V = 1u << 2,
    TESS_GRADIENT_BIAS = 1u << 3,
    TESS_GRADIENT_ALIBI = 1u << 4,
    TESS_GRADIENT_SINK = 1u << 5,
    TESS_GRADIENT_FROM_LSE = 1u << 6 /* d_lse is an input */
};

/* ---- Arguments: where it is; read at every run --------------------------------------------- */

/* Where one forward pass finds its data. A member that the descriptor does not ask for must be
 * NULL; one that it asks for must not, unless its tensor has no elements. */
typedef struct tess_forward_args {
    size_t struct_size; /* sizeof(tess_forward_args) */
    tess_in q, k, v;
    tess_out o;
    tess_out lse;                                             /* base NULL: not wanted */
    tess_in cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k; /* tess_varlen */
    tess_in page_table;                                       /* int32; tess_paging */
    tess_in bias, alibi_slopes, sink;                         /* tess_bias */
    tess_in q_descale, k_descale, v_descale;                  /* tess_scaling */
    tess_out workspace;    /* base NULL: the queue's own scratch, which grows as needed */
    size_t workspace_size; /* bytes at workspace; at least tess_plan_workspace_size() */
} tess_forward_args;

/* Where one backward pass finds its data; inputs and rules as in tess_forward_args, with o and lse
 * as the forward pass left them. Gradients overwrite their outputs; rows and columns past the used
 * lengths are not written.
 *
 * d_lse is laid out like lse. dalibi_slopes is fp32, packed (sequences, heads_q), or (heads_q),
 * summed over the sequences, when slope_stride[0] is 0. dsink is fp32, packed (heads_q). */
typedef struct tess_backward_args {
    size_t struct_size; /* sizeof(tess_backward_args) */
    tess_in q, k, v, o, lse;
    tess_in d_o;
    tess_in d_lse; /* base NULL: zero */
    tess_in cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k;
    tess_in page_table;
    tess_in bias, alibi_slopes, sink;
    tess_in q_descale, k_descale, v_descale;
    tess_out dq, dk, dv, dbias, dalibi_slopes, dsink;
    tess_out workspace;
    size_t workspace_size;
} tess_backward_args;

/* ---- Plans --------------------------------------------------------------------------------- */

/* Plans one forward pass: chooses a kernel, a schedule and a workspace for exactly this problem on
 * this device.
 *
 * device    where the plan will run; must outlive the plan
 * desc      read during the call only
 * out_plan  receives a plan to be freed with tess_plan_destroy(); untouched on failure
 *
 * Fails with TESS_INVALID when the descriptor contradicts itself (the text names the member, its
 * value and what is accepted), TESS_TOO_NEW, TESS_UNSUPPORTED when every kernel refuses (the text
 * lists each kernel and its reason), TESS_NO_MEMORY, TESS_DEVICE_FAILED.
 * Costs microseconds on the CPU; on a GPU milliseconds the first time a kernel image is loaded.
 * Threads: safe on one device from several threads. */
TESS_API tess_status tess_plan_create_forward(tess_device *device, const tess_attention_desc *desc,
                                              tess_plan **out_plan);

/* Plans one backward pass of the forward pass that desc describes; as tess_plan_create_forward().
 *
 * gradients  NULL: dq, dk and dv, laid out like q, k and v */
TESS_API tess_status tess_plan_create_backward(tess_device *device, const tess_attention_desc *desc,
                                               const tess_gradient_desc *gradients,
                                               tess_plan **out_plan);

/* Frees a plan that no queue is running any more. NULL is fine.
 * Threads: no other call may use the plan. */
TESS_API void tess_plan_destroy(tess_plan *plan);

/* Bytes of scratch memory one run needs; 0 is possible. Threads: any. */
TESS_API size_t tess_plan_workspace_size(const tess_plan *plan);

/* Describes the plan to a person: the problem's line, kernel, tile shape, schedule, splits,
 * workspace, cost, and every kernel that was refused with its reason. Several lines.
 *
 * text  receives at most size bytes including the terminating zero; may be NULL when size is 0
 *
 * Returns the length of the whole text without its terminating zero. Threads: any. */
TESS_API size_t tess_plan_describe(const tess_plan *plan, char *text, size_t size);

/* Puts one forward pass into a queue. With a workspace given it neither allocates nor waits.
 *
 * plan   made by tess_plan_create_forward() on the queue's device
 * args   read during the call; the memory it names must stay until the queue is waited for.
 *        Outputs must not overlap each other or any input
 *
 * Fails with TESS_INVALID (outputs untouched) for a missing, superfluous, misaligned or
 * overlapping address, a workspace that is too small, and, on the CPU, index arrays that
 * contradict the tensors' extents; TESS_TOO_NEW, TESS_NO_MEMORY, TESS_DEVICE_FAILED.
 * Threads: one at a time per queue. */
TESS_API tess_status tess_plan_run_forward(const tess_plan *plan, tess_queue *queue,
                                           const tess_forward_args *args);

/* Puts one backward pass into a queue; as tess_plan_run_forward(). */
TESS_API tess_status tess_plan_run_backward(const tess_plan *plan, tess_queue *queue,
                                            const tess_backward_args *args);

/* ---- Partial results ----------------------------------------------------------------------- */

/* Attention over parts of the keys, merged to attention over all of them. Part p of O is at
 * o_part + p * o_part_stride elements; the same for LSE. */
typedef struct tess_merge_desc {
    size_t struct_size;                     /* sizeof(tess_merge_desc) */
    int64_t parts;                          /* at least 1 */
    tess_layout o_part;                     /* one part; TESS_F32, TESS_F16 or TESS_BF16 */
    tess_layout lse_part;                   /* one part; TESS_F32, head_dim 1 */
    int64_t o_part_stride, lse_part_stride; /* in elements */
    tess_layout o;                          /* extents of o_part; may be another float type */
    tess_layout lse;                        /* extents of lse_part; TESS_F32 */
} tess_merge_desc;

/* Where the parts are and where the result goes. */
typedef struct tess_merge_args {
    size_t struct_size; /* sizeof(tess_merge_args) */
    tess_in o_part, lse_part;
    tess_out o;
    tess_out lse; /* base NULL: not wanted */
} tess_merge_args;

/* Merges partial results: L = log(sum_p exp(L_p)), O = sum_p exp(L_p - L) O_p, in fp32 (the rule
 * of "FlashAttention-2", Dao 2023, section 2.3.1, solved for normalised parts). Parts with LSE
 * -infinity are not there, whatever their O holds; all of them gives O = +0, LSE = -infinity.
 * Serves key splits, shared prefixes and rings across machines; any grouping gives the same result
 * up to rounding.
 *
 * desc, args  read during the call
 *
 * Fails with TESS_INVALID, TESS_TOO_NEW, TESS_UNSUPPORTED where the backend has no merge,
 * TESS_DEVICE_FAILED. Threads: one at a time per queue. */
TESS_API tess_status tess_queue_merge(tess_queue *queue, const tess_merge_desc *desc,
                                      const tess_merge_args *args);

#ifdef __cplusplus
}
#endif

#endif
