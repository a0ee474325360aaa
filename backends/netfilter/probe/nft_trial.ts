/**
 * Probes nftables statements. `nft --check` sends them to the kernel as a transaction that is
 * never committed, so nothing can be left behind, even by a killed process.
 *
 * @module
 */
import type { IpFamily } from "../../../lib/net/ip_address.ts";
import type { Feature } from "./feature.ts";
import { noAnswer, type Trial, type Verdict } from "./try_features.ts";
import { firstLine, type ProbeDependencies, saysNotPermitted, tryTool } from "./try_tool.ts";

/** The table of the statements. It is never created. */
const SCRATCH_TABLE = "kube-relay-probe";

/**
 * Statements to try. `{table}` stands for family and table, `{address}` for an address, `{type}`
 * for its type.
 */
export interface NftFeature extends Feature {
  readonly statements: readonly string[];
}

const FAMILY_WORDS = {
  IPv4: {
    table: `ip ${SCRATCH_TABLE}`,
    type: "ipv4_addr",
    address: "192.0.2.1",
    ip: "ip",
  },
  IPv6: {
    table: `ip6 ${SCRATCH_TABLE}`,
    type: "ipv6_addr",
    address: "2001:db8::1",
    ip: "ip6",
  },
} as const;

/** The trial of a feature in one family. */
export function statementTrial<Row extends NftFeature>(row: Row, family: IpFamily): Trial<Row> {
  const words: Readonly<Record<string, string>> = FAMILY_WORDS[family];
  const fill = (text: string) => text.replace(/\{(\w+)\}/g, (_, name) => words[name] ?? "");
  return { row, lines: row.statements.map(fill) };
}

/** Lets the kernel check all trials at once. Throws only if the caller aborts. */
export async function attemptStatements(
  dependencies: ProbeDependencies,
  { family, signal }: { readonly family: IpFamily; readonly signal?: AbortSignal | undefined },
  trials: readonly Trial[],
): Promise<Verdict> {
  const { table } = FAMILY_WORDS[family];
  const head = [`add table ${table}`, `add chain ${table} probe`];
  const lines = [...head, ...trials.flatMap((trial) => trial.lines)];
  const stdin = lines.map((line) => `${line}\n`).join("");
  const answer = await tryTool(dependencies, ["nft", "--check", "-f", "-"], { stdin, signal });
  if (answer.kind !== "ended") return noAnswer(answer);
  if (answer.code === 0) return { kind: "accepted" };
  const words = `${answer.err}\n${answer.out}`;
  if (saysNotPermitted(words)) {
    return { kind: "hopeless", reason: firstLine(words), notPermitted: true };
  }
  const [, first] = /Error: (.*)/.exec(words) ?? [];
  const reason = firstLine(first ?? words) || `nft ended with ${answer.code} and no word why`;
  return { kind: "refused", reason };
}
