// Clipping and AdamW, on the device or, for masters in the host's memory, on the host.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Event.h>

#include <memory>
#include <vector>

#include "weights.h"

namespace mempo {

// Global L2 norm of the summed gradient.
double gradient_norm(const Gradients& gradients);

// Clips a gradient of that norm to o.clip_norm and takes step `number` (from 1). Where memory is missing, weights and
// moments are what they were.
void adamw_step(Weights& weights, double norm, int64_t number, const mempo_update_options& o);

// A place in the device's stream of work.
class Mark {
 public:
  explicit Mark(at::Device device) : device_(device) {}
  void set();
  // Waits for all that came before `set`, if that was called.
  void wait() const;

 private:
  at::Device device_;
  std::unique_ptr<c10::Event> event_;  // none on a CPU, where work ends with its call
};

// AdamW of masters and moments in the host's memory, for weights on a device: gradients come down and weights go up in
// pieces, through buffers that are pinned for a GPU. While one piece is computed, the next one is on its way.
class HostStep {
 public:
  // Elements of a piece: a power of two of bytes, of which the allocator of pinned memory wastes nothing.
  static constexpr int64_t kPiece = int64_t{1} << 24;

  // Takes all memory that step `number` needs. Pieces of whole cache lines give the bits that whole tensors do.
  HostStep(at::Device device, const std::vector<Parameter*>& parameters, Gradients& gradients, int64_t number, int64_t piece = kPiece);
  void run(const mempo_update_options& o);

 private:
  struct Piece {
    Parameter* parameter;
    at::Tensor gradient;  // of the whole parameter, on the device
    int64_t begin, count;
    at::Tensor of(const at::Tensor& whole) const { return whole.view({-1}).narrow(0, begin, count); }
  };
  struct Lane {
    at::Tensor down, up;
    Mark came, went;
  };
  void fetch(const Piece& piece, Lane& lane) const;
  void send(const Piece& piece, Lane& lane) const;

  std::vector<Piece> pieces_;
  std::vector<Lane> lanes_;
  int64_t number_;
};

}  // namespace mempo
