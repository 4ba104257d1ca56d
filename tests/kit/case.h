/* SPDX-License-Identifier: Apache-2.0
 * From a problem line to descriptors, tensors full of data, and arguments. */
#ifndef TESSERA_TESTS_KIT_CASE_H
#define TESSERA_TESTS_KIT_CASE_H

#include "core/schedule/problem_text.h"
#include "tests/kit/guard.h"

#include <tessera/tessera.h>

/* The tensors of a case. */
enum {
    TESS_CASE_Q,
    TESS_CASE_K,
    TESS_CASE_V,
    TESS_CASE_O,
    TESS_CASE_LSE,
    TESS_CASE_CU_Q,
    TESS_CASE_CU_K,
    TESS_CASE_USED_Q,
    TESS_CASE_USED_K,
    TESS_CASE_TABLE,
    TESS_CASE_BIAS,
    TESS_CASE_SLOPES,
    TESS_CASE_SINK,
    TESS_CASE_D_O,
    TESS_CASE_D_LSE,
    TESS_CASE_DQ,
    TESS_CASE_DK,
    TESS_CASE_DV,
    TESS_CASE_DBIAS,
    TESS_CASE_DSLOPES,
    TESS_CASE_DSINK,
    TESS_CASE_TENSORS
};

/* One tensor. The host buffer ends exactly behind its last element. On a device that does not read
 * host memory there is a copy, with canaries on both sides. */
typedef struct tess_tensor {
    const char *name;
    bool is_present, is_output;
    tess_layout layout; /* bias: head_dim is the column; index arrays: head_dim is the index */
    int64_t origin;     /* elements from the buffer's first to element (0,0,0,0) */
    size_t element_size;
    tess_buffer buffer;
    uint64_t hash; /* of the buffer as it was filled */
    void *device;  /* NULL: the host buffer is used as it is */
    size_t device_size;
    bool is_folded; /* on the host, pass the address of element (0,0,0,0) and no offset */
} tess_tensor;

typedef struct tess_case {
    tess_line line;
    tess_attention_desc desc; /* points into this struct: a case must not be copied */
    tess_gradient_desc gradients;
    tess_varlen varlen;
    tess_paging paging;
    tess_bias bias;
    int64_t pages; /* of the pool */
    bool is_plain; /* tess_case_make_plain(), and what it was told */
    bool from_lse;
    double touched, room; /* bytes of all tensors so far, and those there were to begin with */
    bool is_on_host;      /* the device it was uploaded to reads host memory: there are no copies */
    tess_tensor tensor[TESS_CASE_TENSORS];
} tess_case;

/* Draws layouts, allocates, fills. A backward line also gets dO, sometimes dLSE, and outputs for
 * the gradients that are drawn to be wanted. Everything that no row may use, in gaps of strides,
 * behind used lengths, in unused pages and slots, holds NaN or infinity. Outputs hold a signalling
 * pattern.
 *
 * out  filled in place; release with tess_case_free(), also after a failure
 * why  what was wrong or missing, when false is returned */
bool tess_case_make(const tess_line *line, tess_case *out, tess_text *why);

/* The same; a backward line asks for what programs mostly ask for, nothing drawn: every gradient
 * there is, in its tensor's type, and dLSE when the caller says so. */
bool tess_case_make_plain(const tess_line *line, bool from_lse, tess_case *out, tess_text *why);
void tess_case_free(tess_case *c);

/* Puts every tensor on a device, unless that is the one that reads host memory. Only `queue`'s
 * device may be used afterwards. False when memory runs out or the driver fails. */
bool tess_case_upload(tess_case *c, tess_device *device, tess_queue *queue, tess_text *why);
void tess_case_drop(tess_case *c, tess_device *device);

/* Fills outputs with their pattern, in host memory. */
void tess_case_prefill(tess_case *c);

/* After the forward pass of a backward line: O and LSE are inputs from here on. */
void tess_case_keep_outputs(tess_case *c);

/* Runs that forward pass, into fresh outputs, and keeps them. TESSERA_KERNEL may name a kernel of
 * the backward pass, which leaves none for this one: any other is taken then. */
tess_status tess_case_run_forward(tess_case *c, tess_device *device, tess_queue *queue,
                                  tess_text *why);

/* Prefills the outputs again, on the device too. */
bool tess_case_reset(tess_case *c, tess_queue *queue, tess_text *why);

/* Copies outputs, and their surroundings, back to the host buffers. False when that fails or a
 * canary on the device was overwritten. */
bool tess_case_download(tess_case *c, tess_queue *queue, tess_text *why);

/* Arguments without a workspace: of the device's copies where there are any, else of host memory.
 * The oracle takes those of the host. */
tess_forward_args tess_case_forward_args(const tess_case *c, bool wants_lse);
tess_forward_args tess_case_host_forward_args(const tess_case *c);
tess_backward_args tess_case_backward_args(const tess_case *c);
tess_backward_args tess_case_host_backward_args(const tess_case *c);

/* Fingerprint of a tensor in host memory; tess_tensor.hash of an input says what it was. */
uint64_t tess_tensor_hash(const tess_tensor *tensor);

/* Address in host memory of one element. */
char *tess_case_element(const tess_tensor *tensor, int64_t batch, int64_t seqlen, int64_t head,
                        int64_t dim);

/* Batch entry and row of a tensor of queries where row `row` of a sequence lies. */
void tess_case_row_place(const tess_case *c, int64_t sequence, int64_t row, int64_t *out_batch,
                         int64_t *out_seqlen);

/* The same for keys. */
void tess_case_column_place(const tess_case *c, int64_t sequence, int64_t column,
                            int64_t *out_batch, int64_t *out_seqlen);

/* Multiply-adds of the forward pass over used lengths, masks not considered. */
double tess_line_cost(const tess_line *line);

#endif
