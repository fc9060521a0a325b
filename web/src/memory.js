// What takes the memory of a card: a part for each session, other programs', the driver's, and free.

/** Bytes of a session on the card: its data there, what cannot be swapped, and its contexts. */
export function onCard(session, gpu) {
  return (
    (session.resident_bytes ?? 0) +
    (session.fixed_bytes ?? 0) +
    (session.contexts ?? 0) * (gpu.context_bytes ?? 0)
  );
}

/**
 * Parts {kind, name, bytes, session} that together are the card, in this order: sessions, the largest
 * first; foreign; free; reserved, for contexts to come and the driver.
 */
export function partsOf(gpu, sessions) {
  const mine = sessions
    .filter((each) => each.gpu === gpu.index)
    .map((session) => ({ kind: "session", name: session.name, bytes: onCard(session, gpu), session }))
    .filter((part) => part.bytes > 0)
    .sort((a, b) => b.bytes - a.bytes || a.session.id - b.session.id);
  const parts = [...mine];
  if (gpu.foreign_bytes > 0) parts.push({ kind: "foreign", name: "outside Tandem", bytes: gpu.foreign_bytes });
  parts.push({ kind: "free", name: "free", bytes: Math.max(0, gpu.free_bytes ?? 0) });
  const left = (gpu.card_bytes ?? 0) - parts.reduce((sum, part) => sum + part.bytes, 0);
  if (left > 0) parts.push({ kind: "reserved", name: "reserved", bytes: left });
  return parts;
}

/** The first `most`, and one part for the others of the sessions. */
export function foldParts(parts, most) {
  const sessions = parts.filter((part) => part.kind === "session");
  if (sessions.length <= most) return parts;
  const rest = sessions.slice(most - 1);
  const folded = {
    kind: "others",
    name: `${rest.length} others`,
    bytes: rest.reduce((sum, part) => sum + part.bytes, 0),
  };
  return [...sessions.slice(0, most - 1), folded, ...parts.filter((part) => part.kind !== "session")];
}
