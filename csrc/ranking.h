// The best rows of a search.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace mempo {

struct Hit {
  float score;
  int32_t row;
  bool before(const Hit& other) const { return score != other.score ? score > other.score : row < other.row; }
};

// Holds the best hits that were offered, at most `limit`, whatever their order.
class Ranking {
 public:
  explicit Ranking(int64_t limit) : limit_(static_cast<size_t>(limit)) {}

  // What a score must reach to be held; −∞ while there is room.
  float threshold() const { return threshold_; }

  void offer(Hit hit) {
    if (hits_.size() < limit_) {
      if (hit.score != hit.score) return;  // not a number
      hits_.push_back(hit);
      std::push_heap(hits_.begin(), hits_.end(), worst_on_top);
    } else {
      if (!hit.before(hits_.front())) return;
      std::pop_heap(hits_.begin(), hits_.end(), worst_on_top);
      hits_.back() = hit;
      std::push_heap(hits_.begin(), hits_.end(), worst_on_top);
    }
    if (hits_.size() == limit_) threshold_ = hits_.front().score;
  }

  const std::vector<Hit>& hits() const { return hits_; }

  // Writes the hits, best first, and fills up to the limit.
  void write(int32_t* rows, float* scores) {
    std::sort_heap(hits_.begin(), hits_.end(), worst_on_top);
    for (size_t n = 0; n < limit_; ++n) {
      rows[n] = n < hits_.size() ? hits_[n].row : -1;
      scores[n] = n < hits_.size() ? hits_[n].score : 0.0F;
    }
    hits_.clear();
  }

 private:
  static bool worst_on_top(const Hit& a, const Hit& b) { return a.before(b); }

  size_t limit_;
  float threshold_ = -std::numeric_limits<float>::infinity();
  std::vector<Hit> hits_;
};

}  // namespace mempo
