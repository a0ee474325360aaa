/**
 * `/flagz`: the command line as it was understood (KEP-4828).
 *
 * @module
 */
import { isSecretName, REDACTED, redactText } from "../log/redact.ts";
import type { ZPage } from "./z_page.ts";

/** Flags by name, without dashes, and their values as text. What looks like a secret is taken out. */
export function flagzPage(flags: Readonly<Record<string, string>>): ZPage {
  const shown = Object.entries(flags)
    .sort(([left], [right]) => left < right ? -1 : 1)
    .map(([name, value]) => [name, isSecretName(name) ? REDACTED : redactText(value)] as const);
  return {
    kind: "Flagz",
    fields: { flags: Object.fromEntries(shown) },
    lines: shown.map(([name, value]) => `${name}=${value}`),
  };
}
