import { assertEquals } from "@std/assert";
import type { Feature } from "./feature.ts";
import { noAnswer, type Trial, trialOfLine, tryFeatures, type Verdict } from "./try_features.ts";

const ACCEPTED: Verdict = { kind: "accepted" };

function trial(feature: string, lines: readonly string[] = [feature]): Trial {
  const row: Feature = { feature, required: true, lost: "", broughtBy: "" };
  return { row, lines };
}

const TRIALS = ["a", "b", "c"].map((name) => trial(name));

/** A tool that refuses some features, and says which or not. */
function tool(refused: readonly string[], { names }: { readonly names: boolean }) {
  const runs: string[] = [];
  return {
    runs,
    attempt(trials: readonly Trial[]): Promise<Verdict> {
      const given = trials.map(({ row }) => row.feature);
      runs.push(given.join(""));
      const bad = given.findIndex((feature) => refused.includes(feature));
      if (bad < 0 && !refused.includes("everything")) return Promise.resolve(ACCEPTED);
      const blamed = new Map(names && bad >= 0 ? [[bad, `no ${given[bad]}`]] : []);
      return Promise.resolve({ kind: "refused", blamed, reason: "failed" });
    },
  };
}

function reasonsOf({ reasons }: { readonly reasons: ReadonlyMap<Feature, string> }) {
  return Object.fromEntries([...reasons].map(([{ feature }, reason]) => [feature, reason]));
}

Deno.test("tryFeatures() runs everything once if nothing is refused", async () => {
  const { attempt, runs } = tool([], { names: true });
  const findings = await tryFeatures(TRIALS, attempt);
  assertEquals([findings.base, reasonsOf(findings), runs], [undefined, {}, ["abc"]]);
});

Deno.test("tryFeatures() takes out what the tool names and runs the rest again", async () => {
  const { attempt, runs } = tool(["a", "c"], { names: true });
  const findings = await tryFeatures(TRIALS, attempt);
  assertEquals(reasonsOf(findings), { a: "no a", c: "no c" });
  assertEquals([findings.base, runs], [undefined, ["abc", "bc", "b"]]);
});

Deno.test("tryFeatures() tries each alone if the tool names none", async () => {
  const { attempt, runs } = tool(["b"], { names: false });
  const findings = await tryFeatures(TRIALS, attempt);
  assertEquals(reasonsOf(findings), { b: "failed" });
  assertEquals([findings.base, runs], [undefined, ["abc", "", "a", "b", "c"]]);
});

Deno.test("tryFeatures() tells that nothing at all is accepted", async () => {
  const { attempt } = tool(["everything"], { names: false });
  assertEquals((await tryFeatures(TRIALS, attempt)).base, "failed");
  assertEquals((await tryFeatures([], attempt)).base, "failed");
  const named = tool(["everything", "a", "b", "c"], { names: true });
  assertEquals((await tryFeatures(TRIALS, named.attempt)).base, "failed");
});

Deno.test("tryFeatures() asks a program that hangs only once", async () => {
  let runs = 0;
  const findings = await tryFeatures(TRIALS, () => {
    runs += 1;
    return Promise.resolve(noAnswer({ kind: "stuck", reason: "stuck" }));
  });
  assertEquals([runs, findings.base], [1, "stuck"]);
  assertEquals(reasonsOf(findings), { a: "stuck", b: "stuck", c: "stuck" });
});

Deno.test("tryFeatures() tells missing rights from a missing feature", async () => {
  const attempt = () =>
    Promise.resolve<Verdict>({ kind: "hopeless", reason: "denied", notPermitted: true });
  assertEquals((await tryFeatures(TRIALS, attempt)).notPermitted, true);
});

Deno.test("trialOfLine() counts the lines of the trials before", () => {
  const trials = [trial("a", ["1"]), trial("b", ["2", "3"]), trial("c", ["4"])];
  const found = [1, 2, 3, 4, 5, 6, 7].map((line) => trialOfLine(trials, { line, before: 2 }));
  assertEquals(found, [undefined, undefined, 0, 1, 1, 2, undefined]);
});
