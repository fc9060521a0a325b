// What a hand-over moves, and what its messages say about how long that takes (switch_cost.h).
#include <algorithm>

#include "src/core/arbiter.h"

namespace tandem::core {

// Of the first that waits and is not being served.
Moves Arbiter::NextMoves(Bytes free) const {
  Moves moves = last_moves_;
  wishes_.Visit([&](const Wish& wish) {
    if (claimant() == wish.id) return false;
    const Roster::Ids& holders = roster_.counted().holders;
    moves =
        planner_.MovesFor(wish, holders.empty() ? nullptr : &roster_.at(*holders.begin()), free);
    return true;
  });
  return moves;
}

Duration Arbiter::SwitchEstimate() const {
  return cost_.Estimate(NextMoves(budget_.free()));
}

Duration Arbiter::Quantum() const {
  return config_.turns.Quantum(cost_.Estimate(NextMoves(Bytes())));
}

void Arbiter::CountOut(Bytes gone, const event::Evicted& e, Moves* moves) {
  const Bytes copied = std::min(e.copied, gone);  // it is only a claim
  const Bytes to_file = std::min(e.to_file, copied);
  moves->at(Way::kOut, Place::kCard) += gone - copied;
  moves->at(Way::kOut, Place::kMemory) += copied - to_file;
  moves->at(Way::kOut, Place::kFile) += to_file;
}

// Of a session that was told to leave, and has done nothing else since the last chunk.
void Arbiter::NoteLeaving(Session* session, const event::Evicted& e) {
  if (session->holds() || !session->leaves_since.has_value()) return;
  const Duration took = now_ - *session->leaves_since;
  const Bytes gone = SaturatingSubtract(session->charge + session->excess, e.resident);
  const Bytes copied = std::min(e.copied, gone);  // it is only a claim
  if (copied > Bytes()) {
    cost_.LearnMove(Way::kOut, e.to_file > Bytes() ? Place::kFile : Place::kMemory, copied, took);
  } else {
    cost_.LearnMove(Way::kOut, Place::kCard, gone, took);
  }
  if (gone > Bytes()) session->modified.Add(static_cast<double>(copied.count), gone);
  session->leaves_since.reset();
  if (e.resident > session->credit) session->leaves_since = now_;
}

// Time in which it had no credit for more is none of the bus's.
void Arbiter::Handle(const event::Restored& e) {
  Session* const session = FindHolder(e.id, e.epoch);
  if (session == nullptr || session->phase != Phase::kGranted) return;
  session->tells_arrivals = true;
  const Bytes resident = std::min(e.resident, session->credit);
  const Bytes come = SaturatingSubtract(resident, session->arrived);
  const Bytes copied = std::min(e.copied, come);
  const Bytes fresh = come - copied;
  const Bytes from_file = std::min(e.from_file, copied);
  const Duration took = now_ - session->arrives_since;
  if (copied > Bytes()) {
    const Place place = from_file > Bytes() ? Place::kFile : Place::kMemory;
    cost_.LearnMove(Way::kIn, place, copied, took);
  } else {
    cost_.LearnMove(Way::kIn, Place::kCard, fresh, took);
  }
  session->arrived += come;
  // Single bytes are no progress.
  const bool chunk = session->arrived >= session->arriving_from + config_.chunk;
  if (chunk || session->arrived == session->credit) {
    if (come > Bytes()) session->progressed_at = now_;
    session->arriving_from = session->arrived;
  }
  session->arrives_since = now_;
  Handover* const record = session->record != nullptr ? session->record.get() : RecordOf(*session);
  if (record == nullptr) return;
  record->moved.at(Way::kIn, Place::kCard) += fresh;
  record->moved.at(Way::kIn, Place::kMemory) += copied - from_file;
  record->moved.at(Way::kIn, Place::kFile) += from_file;
}

// All is there; `copied` counts what was told of already. Older programs tell of nothing before.
void Arbiter::NoteArrived(Session& session, Bytes copied, Handover* record) {
  record->in = copied;
  const Bytes told =
      record->moved.at(Way::kIn, Place::kMemory) + record->moved.at(Way::kIn, Place::kFile);
  const Bytes untold = SaturatingSubtract(std::min(copied, session.credit), told);
  if (untold == Bytes()) return;
  record->moved.at(Way::kIn, Place::kMemory) += untold;
  cost_.LearnMove(Way::kIn, Place::kMemory, untold, now_ - session.arrives_since);
}

}  // namespace tandem::core
