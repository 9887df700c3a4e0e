// The weights of a model under their file names, with master copies, gradients and moments.
#pragma once

#include <ATen/ATen.h>

#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "guard.h"

namespace mempo {

// One stored tensor. Projections that read the same input are stacked into one, so that the
// forward pass runs one matrix product for them; their names are slices of its rows.
struct Parameter {
  at::Tensor weight;    // compute dtype
  // Float32; undefined for what is not trained. On the device it has the storage of a weight that is float32.
  at::Tensor master;
  at::Tensor first_moment, second_moment;  // float32, beside the master; undefined before the first update
  size_t index;
  bool trained() const { return master.defined(); }
};

// The gradients of all parameters, summed in place: float32 on the device, undefined until something is added. Those that are not
// trained have none, and what is added to theirs is not computed.
class Gradients {
 public:
  explicit Gradients(size_t parameters) : sums_(parameters) {}

  // The sum of one, made (as zeros) when it is not there yet; stays undefined for one that is not trained.
  at::Tensor& of(const Parameter& p);
  // Adds outputᵀ · input, the gradient of a projection's weight; both have a row for each token.
  void add_product(const Parameter& p, const at::Tensor& output, const at::Tensor& input);
  // Adds the sum over output's tokens, the gradient of a projection's bias.
  void add_bias(const Parameter& p, const at::Tensor& output);
  // Adds rows[t] to row ids[t], in the same order every time.
  void add_rows(const Parameter& p, const at::Tensor& ids, const at::Tensor& rows);
  void add(Gradients&& others);

  bool empty() const;
  const std::vector<at::Tensor>& sums() const { return sums_; }

 private:
  std::vector<at::Tensor> sums_;
};

class Weights {
 public:
  // With `optimizer_on_host` masters and moments lie in the host's memory.
  Weights(at::Device device, at::ScalarType dtype, bool trainable, bool optimizer_on_host = false)
      : device_(device), dtype_(dtype), trainable_(trainable), optimizer_on_host_(optimizer_on_host) {}

  struct Part {
    std::string name;
    std::vector<int64_t> shape;
  };
  // Adds a tensor that holds `parts` stacked along their first dimension; a frozen one is never trained.
  Parameter* add(const std::vector<Part>& parts, bool frozen = false);

  void set(const std::string& name, const at::Tensor& value);
  // Sets a tensor to draws of a normal distribution, made on the device.
  void fill(const std::string& name, double mean, double deviation, uint64_t seed);
  bool has(const std::string& name) const { return slices_.count(name) > 0; }
  // A view of a named tensor; undefined if that kind does not exist (yet). The master of what has none is its weight.
  at::Tensor view(mempo_kind kind, const std::string& name);
  // Like view, but makes moments that do not exist yet.
  at::Tensor make(mempo_kind kind, const std::string& name);
  void write_master(const std::string& name, const at::Tensor& value);

  std::vector<Parameter*> trained();
  // Sums over micro-batches.
  Gradients& gradients() { return gradients_; }
  void drop_gradients() { gradients_ = Gradients(parameters_.size()); }
  int64_t numel(const std::string& name) const;
  bool trainable() const { return trainable_; }
  bool optimizer_on_host() const { return optimizer_on_host_; }
  at::Device device() const { return device_; }

 private:
  struct Slice {
    Parameter* parameter;
    int64_t begin, rows;
    std::vector<int64_t> shape;
  };
  const Slice& slice(const std::string& name) const;

  at::Device device_;
  at::ScalarType dtype_;
  bool trainable_, optimizer_on_host_;
  std::deque<Parameter> parameters_;
  Gradients gradients_{0};
  std::unordered_map<std::string, Slice> slices_;
};

}  // namespace mempo
