// Approximate search by hnswlib, where its header was there to build with.
#include <string>

#include "guard.h"

#if defined(MEMPO_HNSWLIB)

// What hnswlib prefetches by lies one number behind a list. That reads nothing foreign, as the C library's blocks end later,
// but the sanitizer takes it for an error.
#if defined(__SANITIZE_ADDRESS__)
#define NO_MANUAL_VECTORIZATION
#endif

#include <ATen/Parallel.h>
#include <hnswlib/hnswlib.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>

#include "ranking.h"
#include "vector.h"

namespace mempo {

namespace {

// The distance of two vectors is their inner product with the sign turned: hnswlib keeps what is near.
MEMPO_VECTORIZED float distance(const void* a, const void* b, const void* dimensions) {
  const float *x = static_cast<const float*>(a), *y = static_cast<const float*>(b);
  const auto n = static_cast<int64_t>(*static_cast<const size_t*>(dimensions));
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < n; ++j) sum += x[j] * y[j];
  return -sum;
}

// hnswlib's own space has one distance for the machine that it was compiled for.
class Space final : public hnswlib::SpaceInterface<float> {
 public:
  explicit Space(int64_t dimensions) : dimensions_(static_cast<size_t>(dimensions)) {}
  size_t get_data_size() override { return dimensions_ * sizeof(float); }
  hnswlib::DISTFUNC<float> get_dist_func() override { return distance; }
  void* get_dist_func_param() override { return &dimensions_; }

 private:
  size_t dimensions_;
};

using Index = hnswlib::HierarchicalNSW<float>;

// What an index file begins with, as hnswlib writes it.
struct Header {
  size_t offset_level0, capacity, rows, row_bytes, label_offset, data_offset;
  int top_level;
  unsigned entry;
  size_t most_neighbours, most_neighbours0, neighbours;
  double level_factor;
  size_t ef_construction;
};

template <typename T>
void read_into(std::istream& in, T& value) {
  in.read(reinterpret_cast<char*>(&value), sizeof(T));
}

Header read_header(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  Header h{};
  read_into(in, h.offset_level0), read_into(in, h.capacity), read_into(in, h.rows), read_into(in, h.row_bytes);
  read_into(in, h.label_offset), read_into(in, h.data_offset), read_into(in, h.top_level), read_into(in, h.entry);
  read_into(in, h.most_neighbours), read_into(in, h.most_neighbours0), read_into(in, h.neighbours), read_into(in, h.level_factor);
  read_into(in, h.ef_construction);
  require(in.good(), path + " cannot be read, or is too short for a graph");
  return h;
}

constexpr size_t kMostNeighbours = 1024;

// hnswlib trusts what it reads: this tells whether it may.
void check_header(const std::string& path, const Header& h, int64_t dimensions) {
  const size_t vector_bytes = static_cast<size_t>(dimensions) * sizeof(float), links = (2 * h.neighbours + 1) * sizeof(unsigned);
  const bool sound = h.offset_level0 == 0 && h.neighbours >= 2 && h.neighbours <= kMostNeighbours && h.most_neighbours == h.neighbours &&
                     h.most_neighbours0 == 2 * h.neighbours && h.data_offset == links && h.label_offset == links + vector_bytes &&
                     h.row_bytes == links + vector_bytes + sizeof(size_t) && h.rows >= 1 && h.rows <= INT32_MAX && h.entry < h.rows && h.top_level >= 0 && h.level_factor > 0 && h.level_factor < 10;
  require(sound, path + " is no graph of vectors of " + std::to_string(dimensions) + " numbers, or a broken one");
  require(std::filesystem::file_size(path) / h.row_bytes >= h.rows, path + " is cut short");
}

constexpr size_t kHeaderBytes = 10 * sizeof(size_t) + 2 * sizeof(int) + sizeof(double);

// The lists of the upper levels are whole ones, and the file ends with the last.
void check_lists(const std::string& path, const Header& h) {
  const size_t list_bytes = (h.neighbours + 1) * sizeof(unsigned), most_levels = 64;
  std::ifstream in(path, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(kHeaderBytes + h.rows * h.row_bytes));
  for (size_t row = 0; row < h.rows; ++row) {
    unsigned bytes = 0;
    read_into(in, bytes);
    require(in.good() && bytes % list_bytes == 0 && bytes / list_bytes <= most_levels, path + " is a broken graph, or cut short");
    in.ignore(bytes);
  }
  require(in.good() && static_cast<size_t>(in.tellg()) == std::filesystem::file_size(path), path + " is a broken graph, or cut short");
}

// Every list of neighbours is as long as it may be, and names rows that are there at its level.
void check_links(const std::string& path, const Index& index) {
  const auto sound = [&](unsigned row) {
    const int top = index.element_levels_[row];
    for (int level = 0; level <= top; ++level) {
      unsigned* list = index.get_linklist_at_level(row, level);
      const size_t count = index.getListCount(list);
      if (count > (level == 0 ? index.maxM0_ : index.maxM_)) return false;
      for (size_t n = 1; n <= count; ++n) {
        if (list[n] >= index.cur_element_count || index.element_levels_[list[n]] < level) return false;
      }
    }
    return top <= index.maxlevel_ && index.getExternalLabel(row) < index.cur_element_count && !index.isMarkedDeleted(row);
  };
  bool all = index.element_levels_[index.enterpoint_node_] >= index.maxlevel_;
  for (unsigned row = 0; all && row < index.cur_element_count; ++row) all = sound(row);
  require(all, path + " is a broken graph");
}

std::unique_ptr<Index> open_index(const std::string& path, Space& space, int64_t dimensions) {
  const Header header = read_header(path);
  check_header(path, header, dimensions);
  check_lists(path, header);
  std::unique_ptr<Index> index;
  try {
    index = std::make_unique<Index>(&space, path, /*nmslib=*/false, /*max_elements=*/header.rows);
  } catch (const std::runtime_error& e) {
    throw InvalidArgument(path + " cannot be read as a graph: " + e.what());
  }
  check_links(path, *index);
  return index;
}

class Graph {
 public:
  explicit Graph(const mempo_graph_config& c)
      : dimensions(c.dimensions),
        space_(c.dimensions),
        index_(std::make_unique<Index>(&space_, static_cast<size_t>(c.capacity), static_cast<size_t>(c.neighbours),
                                       static_cast<size_t>(c.ef_construction), c.seed)) {}
  Graph(const std::string& path, int64_t d) : dimensions(d), space_(d), index_(open_index(path, space_, d)) {}

  int64_t size() const { return static_cast<int64_t>(index_->cur_element_count); }

  void add(int64_t count, const float* vectors) {
    const int64_t before = size();
    require(count >= 0 && before + count <= static_cast<int64_t>(index_->max_elements_),
            "the graph has room for " + std::to_string(index_->max_elements_) + " rows");
    for (int64_t n = 0; n < count * dimensions; ++n) {
      require(std::isfinite(vectors[n]), "row " + std::to_string(before + n / dimensions) + " holds a number that is not finite");
    }
    at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) index_->addPoint(vectors + n * dimensions, static_cast<size_t>(before + n));
    });
  }

  void save(const std::string& path) {
    index_->saveIndex(path);
    // hnswlib does not look whether it could write.
    std::ifstream in(path, std::ios::binary | std::ios::ate);
    if (!in.good() || static_cast<size_t>(in.tellg()) != file_bytes()) {
      throw std::runtime_error(path + " could not be written whole: is the disk full?");
    }
  }

  void search(const float* query, int64_t k, int32_t* rows, float* scores) const {
    auto found = index_->searchKnn(query, static_cast<size_t>(k));
    Ranking best(k);
    for (; !found.empty(); found.pop()) best.offer({-found.top().first, static_cast<int32_t>(found.top().second)});
    best.write(rows, scores);
  }

  void hold_candidates(int64_t ef) { index_->setEf(static_cast<size_t>(ef)); }

  const int64_t dimensions;

 private:
  size_t file_bytes() const {
    size_t bytes = kHeaderBytes + index_->cur_element_count * (index_->size_data_per_element_ + sizeof(unsigned));
    for (size_t row = 0; row < index_->cur_element_count; ++row) bytes += static_cast<size_t>(index_->element_levels_[row]) * index_->size_links_per_element_;
    return bytes;
  }

  Space space_;
  std::unique_ptr<Index> index_;
};

void check_config(const mempo_graph_config& c) {
  require(c.dimensions >= 1 && c.dimensions <= (1 << 20), "dimensions is " + std::to_string(c.dimensions) + ", allowed are 1 to 1048576");
  require(c.capacity >= 1 && c.capacity <= INT32_MAX, "capacity is " + std::to_string(c.capacity) + ", allowed are 1 to 2147483647");
  require(c.neighbours >= 2 && c.neighbours <= static_cast<int64_t>(kMostNeighbours),
          "neighbours is " + std::to_string(c.neighbours) + ", allowed are 2 to " + std::to_string(kMostNeighbours));
  require(c.ef_construction >= 1 && c.ef_construction <= (1 << 20), "ef_construction is " + std::to_string(c.ef_construction) + ", allowed are 1 to 1048576");
}

}  // namespace

}  // namespace mempo

struct mempo_graph : mempo::CountedHandle, mempo::Graph {
  using mempo::Graph::Graph;
};

using mempo::guarded;
using mempo::present;
using mempo::require;

int mempo_graph_available(void) { return 1; }

int mempo_graph_new(const mempo_graph_config* config, mempo_graph** out, mempo_error* error) {
  return guarded(error, [&] {
    mempo::check_config(*present(config));
    *out = new mempo_graph(*config);
  });
}

void mempo_graph_free(mempo_graph* graph) { delete graph; }

int64_t mempo_graph_size(const mempo_graph* graph) { return graph != nullptr ? graph->size() : 0; }

int mempo_graph_add(mempo_graph* graph, int64_t count, const float* vectors, mempo_error* error) {
  return guarded(error, [&] { present(graph)->add(count, vectors); });
}

int mempo_graph_save(mempo_graph* graph, const char* path, mempo_error* error) {
  return guarded(error, [&] { present(graph)->save(present(path)); });
}

int mempo_graph_open(const char* path, int64_t dimensions, mempo_graph** out, mempo_error* error) {
  return guarded(error, [&] {
    require(dimensions >= 1 && dimensions <= (1 << 20), "dimensions is " + std::to_string(dimensions) + ", allowed are 1 to 1048576");
    *out = new mempo_graph(std::string(present(path)), dimensions);
  });
}

int mempo_graph_search(mempo_graph* graph, int64_t count, const float* queries, int64_t ef, int64_t k, int32_t* out_rows,
                       float* out_scores, mempo_error* error) {
  return guarded(error, [&] {
    require(present(graph)->size() >= 1, "the graph has no rows");
    require(count >= 1 && k >= 1 && ef >= k, "a search needs a query, a k of at least 1 and an ef of at least k");
    graph->hold_candidates(ef);
    at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t q = begin; q < end; ++q) graph->search(queries + q * graph->dimensions, k, out_rows + q * k, out_scores + q * k);
    });
  });
}

#else

namespace {

int left_out(mempo_error* error) {
  return mempo::guarded(error, [] {
    throw mempo::InvalidArgument("approximate search was left out of this build: hnswlib was not there (Debian: apt-get install libhnswlib-dev; make builds it in)");
  });
}

}  // namespace

int mempo_graph_available(void) { return 0; }
int mempo_graph_new(const mempo_graph_config*, mempo_graph**, mempo_error* error) { return left_out(error); }
void mempo_graph_free(mempo_graph*) {}
int64_t mempo_graph_size(const mempo_graph*) { return 0; }
int mempo_graph_add(mempo_graph*, int64_t, const float*, mempo_error* error) { return left_out(error); }
int mempo_graph_save(mempo_graph*, const char*, mempo_error* error) { return left_out(error); }
int mempo_graph_open(const char*, int64_t, mempo_graph**, mempo_error* error) { return left_out(error); }
int mempo_graph_search(mempo_graph*, int64_t, const float*, int64_t, int64_t, int32_t*, float*, mempo_error* error) { return left_out(error); }

#endif
