export function History() { return <h1>History</h1>; }
