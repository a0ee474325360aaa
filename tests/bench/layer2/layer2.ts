// deno-lint-ignore-file no-console -- what it prints is what it is for
/**
 * Measures how long an address of layer 2 takes to another node, in network namespaces: kube-relay is
 * killed or ends, its node is cut off, an endpoint moves. Exits with status 1 when a limit is exceeded.
 *
 * `deno task bench:layer2 [--rounds 10]`. Needs root, nft, arping, ndisc6, tcpdump and socat.
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import { FailoverCluster } from "../../support/stages/failover_cluster.ts";
import {
  FAILOVER_CAUSES,
  type FailoverFigures,
  measureFailover,
} from "../../support/stages/failover_measure.ts";
import { newTable } from "../report.ts";
import { spreadOf } from "../statistics.ts";

/** Longest time for which two nodes may answer: the duration of a Lease. */
const MOST_DOUBLE_MS = 3_000;

const rounds = Number(parseArgs(Deno.args, { string: ["rounds"] }).rounds ?? 10);
const found = new Map<string, { limitMs: number; figures: FailoverFigures[] }>();
await using cluster = await FailoverCluster.start();
for (let round = 1; round <= rounds; round++) {
  for (const cause of FAILOVER_CAUSES) {
    const { name, limitMs } = cause;
    for (const [family, figures] of Object.entries(await measureFailover(cluster, cause))) {
      found.getOrInsertComputed(`${name}, ${family}`, () => ({ limitMs, figures: [] }))
        .figures.push(figures);
    }
    console.error(`round ${round} of ${rounds}: ${name}`);
  }
}
const table = newTable([
  ...["cause", "served by another node after, s", "limit, s", "no answer for, s"],
  ...["double answers", "for at most, s"],
]);
for (const [name, { limitMs, figures }] of found) {
  const seconds = (key: "servedMs" | "silentMs") => {
    const { min, median, max } = spreadOf(figures.map((each) => each[key] / 1000));
    return `${median.toFixed(2)} (${min.toFixed(2)}-${max.toFixed(2)})`;
  };
  const answers = figures.reduce((sum, { doubleAnswers }) => sum + doubleAnswers, 0);
  const doubleMs = Math.max(...figures.map((each) => each.doubleMs));
  table.push([
    ...[name, seconds("servedMs"), `${limitMs / 1000}`, seconds("silentMs")],
    ...[`${answers}`, (doubleMs / 1000).toFixed(2)],
  ]);
  const isMissed = doubleMs > MOST_DOUBLE_MS || figures.some(({ servedMs }) => servedMs > limitMs);
  if (isMissed) {
    console.log(`Limit exceeded: ${name}`);
    Deno.exitCode = 1;
  }
}
console.log(table.toString());
