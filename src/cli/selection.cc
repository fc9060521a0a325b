#include "src/cli/selection.h"

#include <algorithm>
#include <map>

#include "src/base/json.h"
#include "src/cli/fields.h"

namespace tandem::cli {
namespace {

using Json = nlohmann::json;

bool IsUsers(const Json& session, const std::string& user) {
  const Json& uid = Member(session, "uid");
  return JsonText(uid) == user || UserName(uid) == user;
}

// Numbers that people look for first come first.
struct Order {
  const char* field;
  enum { kText, kLargestFirst, kSmallestFirst, kUser } by;
};

const std::map<std::string, Order>& Orders() {
  static const std::map<std::string, Order> orders = {
      {"id", {"id", Order::kSmallestFirst}},
      {"gpu", {"gpu", Order::kSmallestFirst}},
      {"user", {"uid", Order::kUser}},
      {"name", {"name", Order::kText}},
      {"class", {"class", Order::kText}},
      {"state", {"state", Order::kText}},
      {"resident", {"resident_bytes", Order::kLargestFirst}},
      {"swapped", {"swapped_bytes", Order::kLargestFirst}},
      {"allocated", {"allocated_bytes", Order::kLargestFirst}},
      {"waited", {"waited_s", Order::kLargestFirst}},
      {"held", {"held_s", Order::kLargestFirst}},
      {"active", {"active_s", Order::kLargestFirst}},
      {"elapsed", {"elapsed_s", Order::kLargestFirst}},
  };
  return orders;
}

bool IsBefore(const Json& a, const Json& b, const Order& order) {
  const Json &x = Member(a, order.field), &y = Member(b, order.field);
  switch (order.by) {
    case Order::kText:
      return Text(x) < Text(y);
    case Order::kUser:
      return UserName(x) < UserName(y);
    case Order::kLargestFirst:
      return Number(x) > Number(y);
    case Order::kSmallestFirst:
      return Number(x) < Number(y);
  }
  return false;
}

}  // namespace

const std::vector<std::string>& SortKeys() {
  static const std::vector<std::string> keys = [] {
    std::vector<std::string> names;
    for (const auto& [name, order] : Orders()) names.push_back(name);
    return names;
  }();
  return keys;
}

Result<std::string> Select(const std::string& json, const Selection& selection) {
  if (selection.all()) return json;
  ASSIGN_OR_RETURN(Json answer, Parse(json));
  for (const char* const list : {"sessions", "runs"}) {
    if (!answer.contains(list) || !answer[list].is_array()) continue;
    auto& entries = answer[list].get_ref<Json::array_t&>();
    std::erase_if(entries, [&](const Json& entry) {
      const bool elsewhere =
          selection.card.has_value() && Member(entry, "gpu") != Json(*selection.card);
      return elsewhere || (!selection.user.empty() && !IsUsers(entry, selection.user));
    });
    if (selection.sort.empty()) continue;
    const Order& order = Orders().at(selection.sort);
    std::stable_sort(entries.begin(), entries.end(),
                     [&](const Json& a, const Json& b) { return IsBefore(a, b, order); });
  }
  return JsonText(answer);
}

}  // namespace tandem::cli
