/**
 * Tests that clients of unchanged Services notice no change of other Services.
 * `tests/support/stages/churn_stage.ts` has the switches for an earlier run's changes and for
 * sabotage.
 */
import type { StatusReport } from "../../lib/tools/status/status_report.ts";
import { runChurn, servedServices } from "../support/stages/churn_stage.ts";
import { type Namespace, netnsRequirements } from "../support/stages/netns.ts";
import { isMissing, program, testNeeding } from "../support/requirement.ts";
import { IPTABLES_MODES, RULE_MODES } from "../support/stages/rule_modes.ts";

const test = testNeeding("churn with real packets", [...netnsRequirements(), program("ss")]);

/** Addresses and routes of the node, and the Services that kube-relay reports as served. */
async function stateOf(node: Namespace, status: StatusReport): Promise<unknown> {
  const lines = async (command: string) => (await node.ip(command)).split("\n").sort();
  const sockets = (await node.output("ss", ["-Hlntu"])).split("\n")
    .map((line) => line.split(/\s+/).slice(0, 5).join(" "))
    // A flow of UDP has a socket of its own, bound to no address.
    .filter((line) => !/^udp .* (\*|0\.0\.0\.0):/.test(line));
  return {
    services: servedServices(status),
    addresses: await lines("-o addr show"),
    routes: [...await lines("-4 route show table all"), ...await lines("-6 route show table all")],
    sockets: sockets.sort(),
  };
}

test("churn: 1,000 random changes cost no connection to an unchanged Service", async () => {
  await runChurn({ changes: 1_000, changesPerSecond: 60, stateOf });
});

/** Beyond the tools, nothing depends on the variant of iptables. */
const CHANGES_WITH_LEGACY = 1_000;

for (const mode of RULE_MODES) {
  const changes = mode === IPTABLES_MODES.legacy ? CHANGES_WITH_LEGACY : 2_000;
  Deno.test({
    name: `churn: ${changes} random changes in ${mode.name} leave the state of a fresh start`,
    ignore: isMissing(`churn through ${mode.name}`, mode.requirements()),
    async fn() {
      await runChurn({
        changes,
        changesPerSecond: 100,
        args: mode.args,
        prepare: mode.prepare,
        stateOf: async (node, status) => ({
          services: servedServices(status),
          rules: await mode.state(node),
        }),
      });
    },
  });
}
