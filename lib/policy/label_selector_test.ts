import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import type { LabelSelectorSpec } from "../api/kinds/network_policy.ts";
import { ProblemCollector } from "../api/problem.ts";
import {
  type LabelSelector,
  matchesLabels,
  parseLabelSelector,
  SelectorIndex,
} from "./label_selector.ts";

function parse(spec: LabelSelectorSpec): LabelSelector {
  return parseLabelSelector(spec, "s", new ProblemCollector("NetworkPolicy", "x/p"));
}

const expression = (operator: string, ...values: string[]): LabelSelectorSpec => ({
  matchExpressions: [{ key: "app", operator, ...(values.length > 0 && { values }) }],
});

const MATCHES: readonly {
  selector: LabelSelectorSpec;
  labels: Record<string, string>;
  matches: boolean;
  /** The result if only some labels are known. */
  matchesPartial?: boolean;
}[] = [
  { selector: {}, labels: {}, matches: true },
  { selector: { matchLabels: { app: "a" } }, labels: { app: "a", tier: "b" }, matches: true },
  { selector: { matchLabels: { app: "a" } }, labels: { app: "b" }, matches: false },
  { selector: { matchLabels: { app: "" } }, labels: {}, matches: false },
  { selector: { matchLabels: { constructor: "a" } }, labels: {}, matches: false },
  { selector: expression("In", "a", "b"), labels: { app: "b" }, matches: true },
  { selector: expression("In", "a", "b"), labels: { app: "c" }, matches: false },
  { selector: expression("In", "a", "b"), labels: {}, matches: false },
  { selector: expression("NotIn", "a"), labels: { app: "a" }, matches: false },
  { selector: expression("NotIn", "a"), labels: { app: "b" }, matches: true },
  { selector: expression("NotIn", "a"), labels: {}, matches: true, matchesPartial: false },
  { selector: expression("Exists"), labels: { app: "" }, matches: true },
  { selector: expression("Exists"), labels: {}, matches: false },
  { selector: expression("DoesNotExist"), labels: { app: "" }, matches: false },
  { selector: expression("DoesNotExist"), labels: {}, matches: true, matchesPartial: false },
  {
    selector: { matchLabels: { app: "a" }, ...expression("NotIn", "a") },
    labels: { app: "a" },
    matches: false,
  },
];

for (const { selector, labels, matches, matchesPartial = matches } of MATCHES) {
  Deno.test(`matchesLabels() of ${JSON.stringify(selector)} and ${JSON.stringify(labels)}`, () => {
    assertEquals(matchesLabels(parse(selector), labels), matches);
    assertEquals(matchesLabels(parse(selector), labels, { isPartial: true }), matchesPartial);
  });
}

Deno.test("parseLabelSelector() gives selectors that mean the same one text", () => {
  const { text } = parse({ matchLabels: { a: "1", b: "2" } });
  assertEquals(parse({ matchLabels: { b: "2", a: "1" } }).text, text);
  const written = [{ key: "b", operator: "In", values: ["2", "2"] }];
  assertEquals(parse({ matchLabels: { a: "1" }, matchExpressions: written }).text, text);
  const twice = [...written, ...written, { key: "a", operator: "In", values: ["1"] }];
  assertEquals(parse({ matchExpressions: twice }).text, text);
  assert(parse({ matchLabels: { a: "1", b: "3" } }).text !== text);
});

const INVALID: readonly LabelSelectorSpec[] = [
  expression("Near", "a"),
  expression("In"),
  expression("Exists", "a"),
  { unknownFields: ["matchFields"] },
  { matchExpressions: [{ key: "a", operator: "Exists", unknownFields: ["weight"] }] },
];

for (const selector of INVALID) {
  Deno.test(`parseLabelSelector() reports ${JSON.stringify(selector)}`, () => {
    const problems = new ProblemCollector("NetworkPolicy", "x/p");
    assertEquals(parseLabelSelector(selector, "s", problems).isInvalid, true);
    assertEquals(problems.problems.length, 1);
  });
}

const label = fc.dictionary(fc.constantFrom("a", "b", "c"), fc.constantFrom("1", "2"));
const randomSelector = fc.array(
  fc.record({
    key: fc.constantFrom("a", "b", "c"),
    operator: fc.constantFrom("In", "NotIn", "Exists", "DoesNotExist"),
  }).map(({ key, operator }) => ({
    key,
    operator,
    ...(operator.endsWith("In") && { values: ["1", "2"] }),
  })),
  { maxLength: 3 },
).map((matchExpressions) => parse({ matchExpressions }));

Deno.test("SelectorIndex finds every selector that matches, until it is deleted", () => {
  fc.assert(fc.property(fc.array(randomSelector), label, (selectors, labels) => {
    const index = new SelectorIndex<LabelSelector>();
    for (const selector of selectors) index.add(selector, { scope: "x", selector });
    const matching = (scope: string) =>
      new Set([...index.candidates(scope, labels)].filter((each) => matchesLabels(each, labels)));
    assertEquals(matching("x"), new Set(selectors.filter((each) => matchesLabels(each, labels))));
    assertEquals([...index.candidates("y", labels)], []);
    for (const selector of selectors) index.delete(selector, { scope: "x", selector });
    assertEquals([...index.candidates("x", labels)], []);
  }));
});
