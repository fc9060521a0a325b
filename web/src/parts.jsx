// Pieces that several screens use.

/** One of a few choices, as a row of buttons. `choices`: list of [value, text]. */
export function Choice({ label, value, choices, onChange }) {
  return (
    <fieldset class="choice">
      <legend>{label}</legend>
      <div>
        {choices.map(([each, text]) => (
          <label key={each} class={each === value ? "chosen" : ""}>
            <input type="radio" name={label} value={each} checked={each === value} onChange={() => onChange(each)} />
            {text}
          </label>
        ))}
      </div>
    </fieldset>
  );
}

export function Empty({ title, children }) {
  return (
    <div class="empty">
      <p class="title">{title}</p>
      <p>{children}</p>
    </div>
  );
}

export function Problem({ error }) {
  return error ? (
    <p class="problem" role="alert">
      {error}
    </p>
  ) : null;
}

/**
 * Columns are {key, head, cell(row), numeric, row (it names the row), className}. On a phone each row is a
 * block of its own, and the roles keep it a table for a screen reader.
 */
export function Table({ caption, columns, rows, keyOf, className = "" }) {
  return (
    <div class="table-frame">
      <table class={className} role="table">
        <caption>{caption}</caption>
        <thead role="rowgroup">
          <tr role="row">
            {columns.map((column) => (
              <th key={column.key} role="columnheader" scope="col" class={`at-${column.key} ${column.numeric ? "number" : ""}`} title={column.title}>
                {column.head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody role="rowgroup">
          {rows.map((row) => (
            <tr key={keyOf(row)} role="row">
              {columns.map((column) => {
                const Cell = column.row ? "th" : "td";
                return (
                  <Cell
                    key={column.key}
                    role={column.row ? "rowheader" : "cell"}
                    scope={column.row ? "row" : undefined}
                    class={`at-${column.key} ${column.numeric ? "number" : ""}`}
                    data-head={column.head}
                  >
                    {column.cell(row)}
                  </Cell>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
