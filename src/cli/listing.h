// The daemon's answers, as tables for people.
//
// Pure: JSON text in, text out. What a field lacks is shown as "-": a listing never fails because
// the daemon is of another version.
// Invariant: nothing that other people chose (names of programs, of users) reaches the terminal
// unescaped.
#pragma once

#include <string>

#include "src/base/result.h"
#include "src/cli/table.h"

namespace tandem::cli {

// The answers to "sessions" (sessions_table.cc), "status" and "handovers".
Result<std::string> SessionsTable(const std::string& json, const Screen& screen);
Result<std::string> StatusText(const std::string& json, const Screen& screen);
Result<std::string> HandoversTable(const std::string& json, const Screen& screen);

// Of the answer to "status": the policy of each GPU and the policies to choose from; and what an
// order has changed.
Result<std::string> PoliciesText(const std::string& json);
Result<std::string> PoliciesJson(const std::string& json);
Result<std::string> PolicyChanges(const std::string& json);

// Of the answer to "sessions": the shares of GPU time; and what an order has changed.
Result<std::string> SharesTable(const std::string& json);
Result<std::string> SharesJson(const std::string& json);
Result<std::string> ShareChanges(const std::string& json);

// Of the answer to "sessions" those whose numbers are in `concerned`, the answer to an order.
Result<std::string> PickSessions(const std::string& json, const std::string& concerned);
bool NoSessions(const std::string& json);
// Whether each is off the card.
bool AllSuspended(const std::string& json);
// What they have that cannot leave the card, in a line; empty where there is nothing.
std::string StayingText(const std::string& json);

// One line of pure ASCII JSON, whatever names are in it.
Result<std::string> CompactJson(const std::string& json);

}  // namespace tandem::cli
