/* SPDX-License-Identifier: Apache-2.0
 * What tessera run is asked to do: options, tensors from files, the descriptor made from both. */
#ifndef TESSERA_TOOLS_JOB_H
#define TESSERA_TOOLS_JOB_H

#include "tools/args.h"
#include "tools/safetensors.h"
#include "tools/tensor.h"

typedef struct tool_run_options {
    const char *q, *k, *v; /* .npy files */
    const char *q_name, *k_name, *v_name, *o_name, *lse_name;
    const char *layout, *expect;
    bool causal, not_causal, top_left, no_metadata;
    const char *window;
    tool_real scale, softcap;
    const char *alibi, *sink, *bias;
    const char *cu_seqlens_q, *cu_seqlens_k, *seqused_q, *seqused_k;
    tool_integer splits;
    bool deterministic, batch_invariant, tf32, spread;
    const char *out_dtype;
    const char *output, *o, *lse;
    const char *device, *kernel;
    tool_integer repeat;
    bool verify, verify_all, peak;
    const char *explain_row;
    tool_integer top;
    bool json, quiet;
} tool_run_options;

/* The tensors of a job, in the order of enum tess_address_index as far as they exist there. */
enum {
    TOOL_JOB_Q,
    TOOL_JOB_K,
    TOOL_JOB_V,
    TOOL_JOB_CU_Q,
    TOOL_JOB_CU_K,
    TOOL_JOB_USED_Q,
    TOOL_JOB_USED_K,
    TOOL_JOB_BIAS,
    TOOL_JOB_SLOPES,
    TOOL_JOB_SINK,
    TOOL_JOB_INPUTS
};

typedef struct tool_job {
    tess_attention_desc desc; /* points into this struct: a job must not be copied */
    tess_varlen varlen;
    tess_bias bias;
    tool_safetensors file; /* open only when the input is one */
    bool has_file;
    bool is_by_head; /* bhsd */
    bool scale_from_file, causal_from_file;
    tool_tensor input[TOOL_JOB_INPUTS]; /* data NULL: not there */
    tool_tensor expected_o, expected_lse;
    tool_tensor o, lse; /* results, on the host */
} tool_job;

/* Loads everything and makes the descriptor; the outputs are not allocated yet.
 *
 * path  the .safetensors file, or NULL when the options name .npy files
 *
 * Returns TOOL_OK, or an exit code after a complaint; the job is to be released in both cases. */
int tool_job_load(tool_job *job, const char *path, const tool_run_options *given);

/* Allocates o and lse for a descriptor that a plan has accepted. */
int tool_job_allocate(tool_job *job);

/* The arguments of a forward pass, all in host memory. */
tess_forward_args tool_job_host_args(const tool_job *job);

/* The layout of a tensor as q, k, v and o are laid out in this job; false when it has neither 3 nor
 * 4 axes. */
bool tool_job_view(const tool_job *job, const tool_tensor *tensor, tess_layout *out_layout);

void tool_job_release(tool_job *job);

#endif
