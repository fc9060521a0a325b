// The accounts' database. docs/report.md documents it: other programs read it.
#pragma once

#include <cstdint>

namespace tandem::history {

// As PRAGMA user_version has it. A database with a larger number is a newer Tandem's.
inline constexpr int64_t kAccountsFormat = 1;

// A row is one session in one hour. The hours are those of Unix time; `hour` is the second in which
// one begins. from_ns and to_ns say from when to when in that hour the session was there.
inline constexpr const char* kCreateAccounts = R"(
  CREATE TABLE usage (
    hour INTEGER NOT NULL,
    session INTEGER NOT NULL,
    started_ns INTEGER NOT NULL,
    gpu TEXT NOT NULL,
    gpu_index INTEGER NOT NULL,
    uid INTEGER NOT NULL,
    user TEXT NOT NULL,
    project TEXT NOT NULL,
    run TEXT NOT NULL,
    program TEXT NOT NULL,
    pid INTEGER NOT NULL,
    from_ns INTEGER NOT NULL,
    to_ns INTEGER NOT NULL,
    held_ns INTEGER NOT NULL,
    active_ns INTEGER NOT NULL,
    waited_ns INTEGER NOT NULL,
    allocated_byte_s REAL NOT NULL,
    resident_byte_s REAL NOT NULL,
    swapped_byte_s REAL NOT NULL,
    handovers INTEGER NOT NULL,
    out_bytes INTEGER NOT NULL,
    in_bytes INTEGER NOT NULL,
    PRIMARY KEY (hour, session, started_ns, gpu)
  ) WITHOUT ROWID;
  PRAGMA user_version = 1)";

// With values in the order of the columns.
inline constexpr const char* kAddToAccounts = R"(
  INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
  ON CONFLICT DO UPDATE SET
    from_ns = min(from_ns, excluded.from_ns),
    to_ns = max(to_ns, excluded.to_ns),
    held_ns = held_ns + excluded.held_ns,
    active_ns = active_ns + excluded.active_ns,
    waited_ns = waited_ns + excluded.waited_ns,
    allocated_byte_s = allocated_byte_s + excluded.allocated_byte_s,
    resident_byte_s = resident_byte_s + excluded.resident_byte_s,
    swapped_byte_s = swapped_byte_s + excluded.swapped_byte_s,
    handovers = handovers + excluded.handovers,
    out_bytes = out_bytes + excluded.out_bytes,
    in_bytes = in_bytes + excluded.in_bytes)";

}  // namespace tandem::history
