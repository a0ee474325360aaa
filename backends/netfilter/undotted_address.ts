/**
 * One spelling for addresses of IPv6 that tools of netfilter print with an IPv4 address at their end.
 * Pure.
 *
 * @module
 */

/** An address of ::/96, which nobody else prints so. */
const DOTTED = /(?<![^ [])::(\d+)\.(\d+)\.(\d+)\.(\d+)/g;

/** A text of a tool with such addresses in the words that they were written with: `::102:304`. */
export function withUndottedAddresses(text: string): string {
  return text.includes("::") ? text.replace(DOTTED, undotted) : text;
}

function undotted(_: string, ...octets: readonly string[]): string {
  const [a = 0, b = 0, c = 0, d = 0] = octets.slice(0, 4).map(Number);
  return `::${(a * 256 + b).toString(16)}:${(c * 256 + d).toString(16)}`;
}
