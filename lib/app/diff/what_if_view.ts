/**
 * What other objects would change, as text for people and for programs. Pure.
 *
 * @module
 */
import { createColors } from "picocolors";
import { wrapText } from "../../config/wrap_text.ts";
import { type ServicePortKey, servicePortText } from "../../proxy/service_port_name.ts";
import { printableText } from "../../log/printable_text.ts";
import type { DiffViewOptions } from "./diff_view.ts";
import { countChanges, type FamilyWhatIf, type PlanChange, type WhatIf } from "./what_if.ts";

type Colors = ReturnType<typeof createColors>;

/** How lines are written. */
interface View {
  readonly width: number;
  readonly colors: Colors;
}

/** Of one Service; JSON has all. */
const MOST_LINES = 12;
const INDENT = 4;

/** Each Service that would change: in words, then the rules that go and come. */
export function renderWhatIf(
  whatIf: WhatIf,
  { columns = 80, color = false }: DiffViewOptions = {},
): string {
  const { before: { mode, nodeName }, families } = whatIf;
  const view: View = { width: columns, colors: createColors(color) };
  const lines = [`Node     ${printableText(nodeName)}, mode ${mode}`];
  for (const family of families) {
    // What comes after a list is no part of it.
    if (lines.length > families.indexOf(family) + 1) lines.push("");
    // Not push(...list): a list of some 100,000 lines is too long for arguments.
    for (const line of familyLines(family, view)) lines.push(line);
  }
  const count = countChanges(whatIf);
  const last = count === 0
    ? view.colors.green("Nothing would change")
    : view.colors.yellow(`${count === 1 ? "1 thing" : `${count} things`} would change`);
  return `${[...lines, "", last].join("\n")}\n`;
}

/** A value for `JSON.stringify()`; docs/diff.md tells its fields. */
export function whatIfJson(whatIf: WhatIf): unknown {
  const { before: { mode, nodeName }, families } = whatIf;
  return {
    node: nodeName,
    mode,
    changes: countChanges(whatIf),
    families: families.map(({ family, changes, shared }) => ({
      family,
      shared,
      changes: changes.map(({ key, ...rest }) => ({ servicePort: key, ...rest })),
    })),
  };
}

function familyLines(family: FamilyWhatIf, view: View): readonly string[] {
  const { colors } = view;
  const { changes, shared } = family;
  if (changes.length + shared.length === 0) {
    return [`${colors.bold(family.family)}     nothing would change`];
  }
  const ports = changes.length === 1
    ? "1 port of a Service"
    : `${changes.length} ports of Services`;
  const lines = [`${colors.bold(family.family)}     ${ports}`];
  if (shared.length > 0) {
    lines.push("", colors.bold("For all Services"));
    for (const words of shared) lines.push(wrapped(words, view));
  }
  for (const change of changes) lines.push(...changeLines(change, family, view));
  return lines;
}

function changeLines(
  { key, kind, words, rules: { removed, added } }: PlanChange,
  { plans }: FamilyWhatIf,
  view: View,
): readonly string[] {
  const { colors } = view;
  return [
    "",
    `${colors.bold(printableText(titleOf(key, plans)))} ${kind}`,
    ...(words.length > 0 ? [wrapped(words.join("; "), view)] : []),
    ...signed("-", removed, { ...view, paint: colors.red }),
    ...signed("+", added, { ...view, paint: colors.green }),
  ];
}

function signed(
  sign: "+" | "-",
  lines: readonly string[],
  { width, paint }: View & { readonly paint: (text: string) => string },
): readonly string[] {
  const shown = lines.slice(0, MOST_LINES);
  const more = lines.length - shown.length;
  return [
    ...shown.map((line) => {
      const text = wrapText(printableText(line), { width, indent: INDENT + 2 });
      return paint(`${" ".repeat(INDENT)}${sign} ${text.trimStart()}`);
    }),
    ...(more > 0 ? [`${" ".repeat(INDENT)}${sign} and ${more} more lines; --json has all`] : []),
  ];
}

function wrapped(text: string, { width }: View): string {
  return wrapText(printableText(text), { width, indent: 2 });
}

function titleOf(key: ServicePortKey, plans: FamilyWhatIf["plans"]): string {
  const [before, after] = plans;
  const service = before.services.get(key) ?? after.services.get(key);
  return service ? `${servicePortText(service.name)} ${service.protocol}` : key;
}
