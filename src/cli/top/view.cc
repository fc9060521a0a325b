#include "src/cli/top/view.h"

#include <algorithm>

#include "src/cli/fields.h"

namespace tandem::cli::top {
namespace {

// Whether the first goes before the second, by what the view sorts by.
bool IsBefore(const Row& a, const Row& b, Sort sort) {
  const auto more = [&](const char* key) {
    return Number(Member(*a.json, key)) > Number(Member(*b.json, key));
  };
  switch (sort) {
    case Sort::kGpu:
      return a.gpu < b.gpu;
    case Sort::kActive:
      return a.rates.active.value_or(-1) > b.rates.active.value_or(-1);
    case Sort::kResident:
      return more("resident_bytes");
    case Sort::kWaited:
      return more("waited_s");
    case Sort::kUser:
      return a.user < b.user;
    case Sort::kName:
      return RawText(*a.json, "name") < RawText(*b.json, "name");
  }
  return false;
}

}  // namespace

std::vector<Row> Choose(const Model& model, const View& view) {
  std::vector<Row> rows = model.rows();
  if (!view.user.empty())
    std::erase_if(rows, [&](const Row& row) { return row.user != view.user; });
  std::stable_sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) {
    return view.tree && a.user != b.user ? a.user < b.user : IsBefore(a, b, view.sort);
  });
  return rows;
}

const Row* Selected(const std::vector<Row>& rows, const View& view) {
  if (rows.empty()) return nullptr;
  const auto at = std::find_if(rows.begin(), rows.end(),
                               [&](const Row& row) { return row.key == view.selected; });
  return at == rows.end() ? &rows.front() : &*at;
}

}  // namespace tandem::cli::top
