/** An address of ::/96 or ::ffff:0:0/96, which only these tools print so, perhaps as an end of a range. */
const DOTTED = /(?<![^ [-])::(ffff:)?(\d+)\.(\d+)\.(\d+)\.(\d+)/g;

/** Returns the text with such addresses in their usual form: `::102:304`. */
export function withUndottedAddresses(text: string): string {
  return text.includes("::") ? text.replace(DOTTED, undotted) : text;
}

function undotted(_: string, mapped = "", ...octets: readonly string[]): string {
  const [a = 0, b = 0, c = 0, d = 0] = octets.slice(0, 4).map(Number);
  return `::${mapped}${(a * 256 + b).toString(16)}:${(c * 256 + d).toString(16)}`;
}
