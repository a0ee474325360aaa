import type { Feature } from "./feature.ts";
import { noAnswer, type Trial, type Verdict } from "./try_features.ts";
import { createLine, destroyLine, MAX_SET_NAME_LENGTH } from "../ipset/ipset_text.ts";
import { firstLine, type ProbeDependencies, saysNotPermitted, tryTool } from "./try_tool.ts";

/** Fixed names, so that the next probe removes the leftovers of a killed one. */
const SCRATCH_SET = "KUBE-RELAY-PROBE";

/** A type of set. */
export interface SetFeature extends Feature {
  /** Type and options, e.g. `hash:ip,port family inet`. */
  readonly create: string;
}

/** The trial of a type. */
export function setTrial<Row extends SetFeature>(row: Row): Trial<Row> {
  const name = setNameOf(row.create);
  return { row, lines: [createLine(name, row.create), destroyLine(name)] };
}

/** A name for each type: `-exist` takes over a set of the same type only. */
export function setNameOf(create: string): string {
  const type = create.split(" ").filter((word) => word !== "family").slice(0, 2).join("-");
  const name = `${SCRATCH_SET}-${type.replaceAll(/hash:|bitmap:/g, "").replace("range-0", "")}`;
  return name.slice(0, MAX_SET_NAME_LENGTH);
}

/** Creates and destroys all sets. Throws only when the caller gave up. */
export async function attemptSets(
  dependencies: ProbeDependencies,
  { signal }: { readonly signal?: AbortSignal | undefined },
  trials: readonly Trial[],
): Promise<Verdict> {
  const stdin = trials.flatMap(({ lines }) => lines).map((line) => `${line}\n`).join("");
  let known = false;
  try {
    const answer = await tryTool(dependencies, ["ipset", "restore"], { stdin, signal });
    known = answer.kind === "ended" || answer.kind === "missing";
    if (answer.kind !== "ended") return noAnswer(answer);
    if (answer.code === 0) return { kind: "accepted" };
    return verdictOf(`${answer.err}\n${answer.out}`);
  } finally {
    if (!known) await removeSets(dependencies, trials);
  }
}

function verdictOf(words: string): Verdict {
  if (saysNotPermitted(words)) {
    return { kind: "hopeless", reason: firstLine(words), notPermitted: true };
  }
  const reason = firstLine(words.replace(/^.*?line \d+: /s, "")) ||
    "ipset failed without a word why";
  return { kind: "refused", reason };
}

async function removeSets(
  dependencies: ProbeDependencies,
  trials: readonly Trial[],
): Promise<void> {
  for (const { lines } of trials) {
    const [, name] = /^create (\S+)/.exec(lines[0] ?? "") ?? [];
    if (name !== undefined) await tryTool(dependencies, ["ipset", "destroy", name]);
  }
}
