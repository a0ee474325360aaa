/**
 * What a sync did, in numbers, for people. Pure.
 *
 * @module
 */

/** `1 read, 12 lines`; the names of operations are plurals. */
export function operationsText(operations: Readonly<Record<string, number>>): string {
  return Object.entries(operations)
    .map(([name, count]) => `${count} ${count === 1 ? singular(name) : name}`)
    .join(", ") || "nothing to do";
}

function singular(name: string): string {
  return name.replace(/ies$/, "y").replace(/sses$/, "ss").replace(/([^s])s$/, "$1");
}
