/* The one boundary between Go and libtorch: C99, no torch types.
 *
 * Every function that can fail returns a code and fills the caller's mempo_error with one line; no
 * exception leaves this library. Wrong arguments, freed handles that became NULL among them, are
 * MEMPO_INVALID and change nothing. Inputs are copied, no pointer of the caller is kept. All functions must be
 * called from one thread, the device thread.
 *
 * Packed batches: the tokens of all rows lie one after the other in `ids`; row r covers
 * ids[offsets[r]] .. ids[offsets[r+1]-1]. Log-probabilities are natural and float32. */
#ifndef MEMPO_H
#define MEMPO_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MEMPO_API __attribute__((visibility("default")))

enum {
  MEMPO_OK = 0,
  MEMPO_INVALID = 1,       /* an argument is wrong */
  MEMPO_OUT_OF_MEMORY = 2, /* the only error after which a smaller call may be tried */
  MEMPO_DEVICE = 3,        /* the device failed */
  MEMPO_INTERNAL = 4
};

typedef struct {
  int code;
  char message[1024];
} mempo_error;

/* ---- runtime ---- */

/* Sets the number of threads of one operation; call it once, first. */
MEMPO_API int mempo_runtime_init(int threads, mempo_error *error);
/* What the NVIDIA driver of this machine offers: the newest CUDA that it runs, as 13000 for 13.0, or 0 where there is no
 * driver that can be loaded; and the number of GPUs. Loads no part of libtorch. */
MEMPO_API void mempo_cuda_driver(int *cuda, int *devices);
/* Loads libtorch_cuda; `path` is a file or NULL for the loader's own search. Must come before anything that asks
 * for CUDA, mempo_cuda_device_count among them: libtorch keeps its first answer. */
MEMPO_API int mempo_cuda_load(const char *path, mempo_error *error);
/* Loads libmempo_cuda.so, the kernels of this program, by the loader's own search; libtorch_cuda must be loaded. */
MEMPO_API int mempo_cuda_kernels_load(mempo_error *error);
MEMPO_API int mempo_cuda_device_count(void);
/* Makes "cuda:N" the current device of this thread and starts its runtime; matrix products of float32 stay
 * float32 (no TensorFloat-32). Nothing to do for "cpu". */
MEMPO_API int mempo_device_select(const char *device, mempo_error *error);
/* Version of the libtorch that is loaded, such as "2.11.0", and of the one that this was compiled for. */
MEMPO_API const char *mempo_torch_version(void);
MEMPO_API const char *mempo_torch_needed(void);
/* Bytes in use and their peak: resident set of the process on "cpu", allocator on "cuda:N". */
MEMPO_API int mempo_memory(const char *device, int64_t *current, int64_t *peak, mempo_error *error);
/* Bytes of a GPU that are free for any program. */
MEMPO_API int mempo_memory_free(const char *device, int64_t *bytes, mempo_error *error);
MEMPO_API int mempo_memory_reset_peak(const char *device, mempo_error *error);
/* Models, sessions, encoders and graphs that were made and not freed. */
MEMPO_API int64_t mempo_live_handles(void);

/* ---- model ---- */

typedef struct mempo_model mempo_model;

typedef enum { MEMPO_FLOAT32 = 0, MEMPO_BFLOAT16 = 1 } mempo_dtype;

/* What a forward pass leaves for the backward pass: all results of products and attention, all but the widest (those of
 * the MLP's first product), or each layer's input only. What is missing is computed again. */
typedef enum { MEMPO_KEEP_ALL = 0, MEMPO_RECOMPUTE_MLP = 1, MEMPO_RECOMPUTE_LAYER = 2 } mempo_checkpointing;

/* Linear projections of a layer. */
enum {
  MEMPO_Q_PROJ = 1,
  MEMPO_K_PROJ = 2,
  MEMPO_V_PROJ = 4,
  MEMPO_O_PROJ = 8,
  MEMPO_GATE_PROJ = 16,
  MEMPO_UP_PROJ = 32,
  MEMPO_DOWN_PROJ = 64,
  MEMPO_ALL_PROJECTIONS = 127
};

/* Adapters (LoRA): a projection of `targets`, a sum of the values above, gives W x + scale · B (A x), with A [rank, in]
 * and B [out, rank]. They are all that is trained: the other weights have neither float32 masters beside a narrower
 * compute dtype, nor gradients, nor moments. In place of ".weight" the names of A and B end in ".lora_A.weight" and
 * ".lora_B.weight"; both are zero at first. Rank 0 is no adapters. */
typedef struct {
  int64_t rank;
  double scale;
  unsigned targets;
} mempo_adapters;

typedef struct {
  int64_t vocab, hidden, intermediate, layers, heads, kv_heads, head_dim;
  double rms_norm_eps;
  int qkv_bias, output_bias, mlp_bias, qk_norm, tied_embeddings;
  const float *inverse_frequencies; /* head_dim / 2 numbers, radians per position */
  mempo_dtype compute_dtype;
  int trainable;                /* keeps float32 master weights and gradients */
  mempo_checkpointing checkpointing;
  int64_t groups; /* that the rows of a call are split into to run side by side, each on one thread; 1 = all together */
  mempo_adapters adapters;
  int optimizer_on_host; /* float32 masters and moments lie in the host's memory, where AdamW runs */
} mempo_model_config;

MEMPO_API int mempo_model_new(const mempo_model_config *config, const char *device, mempo_model **out,
                              mempo_error *error);
MEMPO_API void mempo_model_free(mempo_model *model);
/* Copies a weight in. `tensor` is an at::Tensor*, as gotorch.Tensor wraps it; its shape must fit. */
MEMPO_API int mempo_model_set_weight(mempo_model *model, const char *name, const void *tensor, mempo_error *error);
/* Fills a weight with numbers drawn on its device from a normal distribution. */
MEMPO_API int mempo_model_fill(mempo_model *model, const char *name, double mean, double deviation, uint64_t seed,
                               mempo_error *error);

/* Merged is a weight with what its adapter adds to it; it can be read only. */
typedef enum {
  MEMPO_MASTER = 0,
  MEMPO_FIRST_MOMENT = 1,
  MEMPO_SECOND_MOMENT = 2,
  MEMPO_GRADIENT = 3,
  MEMPO_MERGED = 4
} mempo_kind;

/* Copy `count` float32 elements of a named tensor out or in. Moments are zero before the first update. */
MEMPO_API int mempo_model_read(mempo_model *model, mempo_kind kind, const char *name, float *out, int64_t count,
                               mempo_error *error);
MEMPO_API int mempo_model_write(mempo_model *model, mempo_kind kind, const char *name, const float *data,
                                int64_t count, mempo_error *error);
MEMPO_API int64_t mempo_model_update_count(const mempo_model *model);
MEMPO_API void mempo_model_set_update_count(mempo_model *model, int64_t count);

/* ---- generation ---- */

typedef struct mempo_session mempo_session;

typedef struct {
  int64_t row;
  int sample; /* draw the token after the last one */
  double temperature, top_p;
  int64_t top_k;
  uint64_t seed;
} mempo_row_input;

typedef struct {
  int32_t id; /* -1 when none was asked for */
  float log_prob;
  int32_t redraws;
} mempo_sampled;

/* `valid` has one byte per id, 0 = never sample; NULL allows all. `cache_tokens` bounds the keys and values that
 * are held, 0 = no bound: a call that needs more is MEMPO_OUT_OF_MEMORY. `without_adapters` leaves them out of all
 * that the session computes. */
MEMPO_API int mempo_session_new(mempo_model *model, const uint8_t *valid, int64_t valid_count, int64_t cache_tokens,
                                int without_adapters, mempo_session **out, mempo_error *error);
MEMPO_API void mempo_session_free(mempo_session *session);
MEMPO_API int mempo_session_open(mempo_session *session, int64_t *row, mempo_error *error);
/* A new row that begins with the first `length` tokens of another and shares their pages. */
MEMPO_API int mempo_session_fork(mempo_session *session, int64_t row, int64_t length, int64_t *forked,
                                 mempo_error *error);
MEMPO_API int mempo_session_release(mempo_session *session, int64_t row, mempo_error *error);
/* Appends each input's tokens to its row and samples: one forward pass. */
MEMPO_API int mempo_session_step(mempo_session *session, int64_t count, const mempo_row_input *inputs,
                                 const int64_t *offsets, const int32_t *ids, mempo_sampled *out, mempo_error *error);
/* A stretch of tokens behind the first `length` tokens of a row. */
typedef struct {
  int64_t row, length;
  int keep; /* append the tokens to the row, whose whole length `length` is then */
  double temperature;
} mempo_piece;

/* log p and entropy of the tokens at `positions`, as in mempo_score, for stretches that go on from rows: one
 * forward pass. */
MEMPO_API int mempo_session_score(mempo_session *session, int64_t count, const mempo_piece *pieces,
                                  const int64_t *offsets, const int32_t *ids, int64_t position_count,
                                  const int64_t *positions, float *log_probs, float *entropies, mempo_error *error);
/* Tokens of a page, pages in use, and their bound (0 = none). */
MEMPO_API void mempo_session_usage(const mempo_session *session, int64_t *page_tokens, int64_t *pages, int64_t *limit);
/* The distribution a draw is made from: `vocab` probabilities for given logits. */
MEMPO_API int mempo_filtered_distribution(const float *logits, int64_t vocab, double temperature, int64_t top_k,
                                          double top_p, float *out, mempo_error *error);

/* ---- scoring ---- */

/* log p and entropy of the tokens at `positions`: indices into the packed ids, ascending, never
 * the first token of a row. `without_adapters` leaves them out: the model is what it was before training. */
MEMPO_API int mempo_score(mempo_model *model, int64_t rows, const int64_t *offsets, const int32_t *ids,
                          int64_t position_count, const int64_t *positions, double temperature, int without_adapters,
                          float *log_probs, float *entropies, mempo_error *error);

/* ---- learning ---- */

/* The clipped policy loss with its KL term, or −log p, of which only weights and temperature are read. */
typedef enum { MEMPO_POLICY_LOSS = 0, MEMPO_NEGATIVE_LOG_LIKELIHOOD = 1 } mempo_loss_kind;

typedef enum { MEMPO_K1 = 0, MEMPO_ABS = 1, MEMPO_K2 = 2, MEMPO_LOW_VAR_KL = 3 } mempo_kl_estimator;

typedef struct {
  mempo_loss_kind kind;
  double clip_low, clip_high, dual_clip;
  mempo_kl_estimator kl_estimator;
  double kl_coef, temperature;
} mempo_loss_options;

/* What the loss needs beside the log-probs; each array has one element per trained token. Those that the kind
 * of loss does not read may be NULL. */
typedef struct {
  const float *old_log_probs, *ref_log_probs, *advantages, *weights;
} mempo_loss_inputs;

/* Weighted sums, and what the policy loss clipped; the other kind's figures are 0. */
typedef struct {
  double policy, kl, clipped, max_log_ratio, negative_log_likelihood;
} mempo_loss_stats;

/* The loss alone: `gradient` receives d total / d new. */
MEMPO_API int mempo_token_loss(int64_t count, const float *new_log_probs, const mempo_loss_inputs *inputs,
                               const mempo_loss_options *options, mempo_loss_stats *stats, float *gradient,
                               mempo_error *error);
/* Adds the gradient of one micro-batch. Row r goes on behind the first starts[r] tokens of row parents[r], an earlier
 * one that has the token starts[r] - 1 of its own (-1: behind nothing, and starts[r] is 0): rows that begin alike
 * need their beginning only once. Rows groups[n-1] .. groups[n]-1 (from 0) are a group, whose parents lie in it:
 * groups run side by side. Positions are of the rows' own tokens. After an error the sum is no longer whole:
 * drop it. */
MEMPO_API int mempo_forward_backward(mempo_model *model, int64_t rows, const int64_t *offsets, const int32_t *ids,
                                     const int64_t *parents, const int64_t *starts, int64_t group_count,
                                     const int64_t *groups, int64_t position_count, const int64_t *positions,
                                     const mempo_loss_inputs *inputs, const mempo_loss_options *options,
                                     mempo_loss_stats *stats, mempo_error *error);

typedef struct {
  double learning_rate, beta1, beta2, eps, weight_decay, clip_norm;
} mempo_update_options;

/* Clips, takes one AdamW step, clears the gradient. A gradient that is not finite changes nothing:
 * *skipped becomes 1. */
MEMPO_API int mempo_update(mempo_model *model, const mempo_update_options *options, double *grad_norm, int *skipped,
                           mempo_error *error);
MEMPO_API int mempo_drop_gradient(mempo_model *model, mempo_error *error);

/* ---- text encoders ---- */

typedef struct mempo_encoder mempo_encoder;

/* x·Φ(x), its approximation with tanh, and max(x, 0). */
typedef enum { MEMPO_GELU = 0, MEMPO_GELU_TANH = 1, MEMPO_RELU = 2 } mempo_activation;

/* What stands for a row: the mean of its tokens, or its first one ([CLS]). */
typedef enum { MEMPO_POOL_MEAN = 0, MEMPO_POOL_FIRST = 1 } mempo_pooling;

/* A model of the BERT family: a norm behind each half of a layer, learned positions, every token of type 0. */
typedef struct {
  int64_t vocab, hidden, intermediate, layers, heads, positions, token_types;
  double layer_norm_eps;
  mempo_activation activation;
  mempo_pooling pooling;
  int normalize; /* divides each vector by its length */
  mempo_dtype compute_dtype;
  int64_t groups; /* as in mempo_model_config */
} mempo_encoder_config;

MEMPO_API int mempo_encoder_new(const mempo_encoder_config *config, const char *device, mempo_encoder **out,
                                mempo_error *error);
MEMPO_API void mempo_encoder_free(mempo_encoder *encoder);
/* As mempo_model_set_weight; names are those of transformers' BertModel. */
MEMPO_API int mempo_encoder_set_weight(mempo_encoder *encoder, const char *name, const void *tensor, mempo_error *error);
/* One vector of `hidden` numbers for each row of a packed batch, no row longer than `positions`. */
MEMPO_API int mempo_encoder_encode(mempo_encoder *encoder, int64_t rows, const int64_t *offsets, const int32_t *ids,
                                   float *out, mempo_error *error);

/* ---- vector search ---- */

/* For each of `count` queries, the `k` of `rows` vectors (all of `dimensions` numbers, one after the other) whose inner
 * products with it are the largest, best first, equal ones by row: out_rows and out_scores are [count, k]. A product that
 * is not a number is never found; behind what was found, rows are -1 and scores 0. */
MEMPO_API int mempo_search_exact(int64_t count, const float *queries, int64_t rows, const float *vectors,
                                 int64_t dimensions, int64_t k, int32_t *out_rows, float *out_scores, mempo_error *error);

/* A graph of neighbours (HNSW, by hnswlib), by which rows whose inner products are nearly the largest are found without
 * a look at most others. It holds copies of the vectors. */
typedef struct mempo_graph mempo_graph;

typedef struct {
  int64_t dimensions, capacity; /* most rows */
  int64_t neighbours;           /* of a row, "M"; twice as many at the lowest level */
  int64_t ef_construction;      /* candidates while neighbours are sought */
  uint64_t seed;
} mempo_graph_config;

/* 0 where hnswlib was left out of the build: new and open are MEMPO_INVALID then. */
MEMPO_API int mempo_graph_available(void);
MEMPO_API int mempo_graph_new(const mempo_graph_config *config, mempo_graph **out, mempo_error *error);
MEMPO_API void mempo_graph_free(mempo_graph *graph);
MEMPO_API int64_t mempo_graph_size(const mempo_graph *graph);
/* Appends rows; with one thread the same rows make the same graph. */
MEMPO_API int mempo_graph_add(mempo_graph *graph, int64_t count, const float *vectors, mempo_error *error);
MEMPO_API int mempo_graph_save(mempo_graph *graph, const char *path, mempo_error *error);
/* Reads what mempo_graph_save wrote; a file that is not that is MEMPO_INVALID. */
MEMPO_API int mempo_graph_open(const char *path, int64_t dimensions, mempo_graph **out, mempo_error *error);
/* As mempo_search_exact; ef, at least k, is the number of candidates held. */
MEMPO_API int mempo_graph_search(mempo_graph *graph, int64_t count, const float *queries, int64_t ef, int64_t k,
                                 int32_t *out_rows, float *out_scores, mempo_error *error);

#ifdef __cplusplus
}
#endif
#endif
