// A session's message as an event of its arbiter. Only these may come from a session.
#pragma once

#include "src/core/types.h"
#include "src/wire/messages.h"

namespace tandem::service {

inline core::Event ToEvent(core::SessionId id, const wire::Reserve& m) {
  return core::event::Reserve{id, m.sequence, Bytes(m.total_bytes)};
}
inline core::Event ToEvent(core::SessionId id, const wire::ContextWanted&) {
  return core::event::ContextWanted{id};
}
inline core::Event ToEvent(core::SessionId id, const wire::ContextGone&) {
  return core::event::ContextGone{id};
}
inline core::Event ToEvent(core::SessionId id, const wire::FixedWanted& m) {
  return core::event::FixedWanted{id, m.sequence, Bytes(m.bytes)};
}
inline core::Event ToEvent(core::SessionId id, const wire::FixedGone& m) {
  return core::event::FixedGone{id, Bytes(m.bytes)};
}
inline core::Event ToEvent(core::SessionId id, const wire::Ready& m) {
  return core::event::Ready{id, Bytes(m.need_bytes)};
}
inline core::Event ToEvent(core::SessionId id, const wire::Running& m) {
  return core::event::Running{id, m.epoch, Bytes(m.bytes_in)};
}
inline core::Event ToEvent(core::SessionId id, const wire::Restored& m) {
  return core::event::Restored{id, m.epoch, Bytes(m.resident_bytes), Bytes(m.copied_bytes),
                               Bytes(m.from_file_bytes)};
}
inline core::Event ToEvent(core::SessionId id, const wire::Idle& m) {
  return core::event::Idle{id, m.epoch};
}
inline core::Event ToEvent(core::SessionId id, const wire::Active& m) {
  return core::event::Active{id, m.epoch};
}
inline core::Event ToEvent(core::SessionId id, const wire::Released& m) {
  return core::event::Released{id, m.epoch};
}
inline core::Event ToEvent(core::SessionId id, const wire::Busy& m) {
  return core::event::Busy{id, m.epoch};
}
inline core::Event ToEvent(core::SessionId id, const wire::Evicted& m) {
  return core::event::Evicted{id, Bytes(m.resident_bytes), Bytes(m.copied_bytes)};
}
inline core::Event ToEvent(core::SessionId id, const wire::NotReady&) {
  return core::event::NotReady{id};
}
inline core::Event ToEvent(core::SessionId id, const wire::Leave&) {
  return core::event::Leaving{id};
}

}  // namespace tandem::service
