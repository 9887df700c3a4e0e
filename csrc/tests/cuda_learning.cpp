// The CUDA forms of the optimiser's step and of the gradient of an embedding, on a GPU in software, against ATen's.
#include "emulated.h"
#include "kernels.h"

namespace kernels = mempo::kernels;
using emulated::distance;
using emulated::in_every_order;
using emulated::same_bits;

namespace {

std::vector<kernels::AdamwParameter> copies(const std::vector<kernels::AdamwParameter>& given) {
  std::vector<kernels::AdamwParameter> made;
  for (const auto& p : given) {
    const at::Tensor master = p.master.clone(), weight = p.weight.scalar_type() == at::kFloat ? master : p.weight.clone();
    made.push_back({master, p.gradient.clone(), p.first_moment.clone(), p.second_moment.clone(), weight});
  }
  return made;
}

std::vector<at::Tensor> tensors_of(const std::vector<kernels::AdamwParameter>& parameters) {
  std::vector<at::Tensor> all;
  for (const auto& p : parameters) all.insert(all.end(), {p.master, p.first_moment, p.second_moment, p.weight});
  return all;
}

// Tensors of one block, of several, of sizes that no wide access divides, and one that is not aligned to it.
void optimizer_matches(at::ScalarType type) {
  std::vector<kernels::AdamwParameter> given;
  for (const int64_t count : {1, 3, 4, 2048, 8192, 8193, 20001}) {
    const auto random = [&] { return at::randn({count}); };
    const at::Tensor master = random();
    given.push_back({master, random(), random(), random().square(), type == at::kFloat ? master : master.to(type)});
  }
  given[3].gradient[7] = 0;
  given[3].second_moment[7] = 0;
  given[4].gradient = at::randn({8193}).narrow(0, 1, 8192);
  for (const int64_t step : {1, 100}) {
    const kernels::AdamwOptions options{0.01, 0.9, 0.999, 0.1, 1e-8, step};
    const auto found = in_every_order([&] {
      auto parameters = copies(given);
      parameters[4].gradient = at::cat({at::zeros({1}), given[4].gradient}).narrow(0, 1, 8192);
      kernels::adamw_(parameters, options);
      return tensors_of(parameters);
    });
    auto parameters = copies(given);
    kernels::adamw_(parameters, options);
    const std::vector<at::Tensor> wanted = tensors_of(parameters);
    for (size_t k = 0; k < found.size(); ++k) {
      if (k % 4 < 3) EXPECT(distance(found[k], wanted[k], 1e-6, 1e-5) <= 1);
      if (k % 4 == 3) EXPECT(same_bits(found[k], found[k - 3].to(type)));  // the copy is the master, rounded as ATen rounds
    }
  }
}

void rows_are_added(at::ScalarType type) {
  for (const int64_t n : {1, 8, 33, 700}) {
    for (const int64_t tokens : {0, 1, 50}) {
      const at::Tensor ids = at::randint(0, 9, {tokens}, at::kLong), rows = at::randn({tokens, n}).to(type), before = at::randn({12, n});
      const auto found = in_every_order([&] {
        const at::Tensor sums = before.clone();
        kernels::add_rows_(sums, ids, rows);
        return std::vector<at::Tensor>{sums};
      });
      const at::Tensor wanted = before.to(at::kDouble).index_add(0, ids, rows.to(at::kDouble));
      EXPECT(distance(found[0], wanted, 1e-5, 1e-5) <= 1);
      EXPECT(same_bits(found[0].narrow(0, 9, 3), before.narrow(0, 9, 3)));
    }
  }
}

}  // namespace

int main() {
  at::manual_seed(1);
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    optimizer_matches(type);
    rows_are_added(type);
  }
  return failures();
}
