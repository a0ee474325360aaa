/**
 * The userspace mode as a data plane of the cases of NetworkPolicy: it judges what it relays, and writes
 * no rules.
 */
import { IP_FAMILIES, type IpFamily } from "../../../lib/net/ip_address.ts";
import { judgeConnection, viewPlan } from "../../../lib/policy/judge_connection.ts";
import { casePods } from "../../policy/policy_case.ts";
import type { LineProcess } from "../drivers/line_process.ts";
import { planText } from "../drivers/plan_text.ts";
import type { Namespace } from "./netns.ts";
import type { CasePlane, PolicyCaseNodes } from "./policy_case_scene.ts";
import { clusterIpOf } from "./policy_case_services.ts";

/** The text that a client reads from a connection that the relay closes at once. */
const CLOSED = "failed: the connection ended after ''";

/** The nodes, each with a relay for each IP family. */
export function relayNodes(): PolicyCaseNodes {
  const relays = new Map<string, LineProcess>();
  const keyOf = ({ name }: Namespace, family: IpFamily) => `${name} ${family}`;
  return {
    make: (_, { family }, node) => relayPlane(family, relays.get(keyOf(node, family))!),
    prepare: (node) =>
      node.ipBatch(
        IP_FAMILIES.flatMap((family) =>
          casePods().map((pod) => {
            const length = family === "IPv4" ? 32 : 128;
            return `addr add ${clusterIpOf(pod, family)}/${length} dev lo`;
          })
        ),
      ),
    async loadServices(node, family) {
      const relay = node.startDeno(new URL("../drivers/policed_relay.ts", import.meta.url), [
        family,
      ]);
      await relay.nextLine();
      relays.set(keyOf(node, family), relay);
    },
    isAllowed: (plan, connection) => judgeConnection(viewPlan(plan), connection).isAllowed,
    isDenial: (answer) => answer === CLOSED,
    judgesAllPods: true,
  };
}

function relayPlane(family: IpFamily, relay: LineProcess): CasePlane {
  return {
    family,
    tool: "nftables",
    compare: () => Promise.reject(new Error("Cannot compare: a relay writes no rules")),
    start: () => Promise.resolve(),
    async sync(plan, changes) {
      await relay.writeLine(planText({ plan, changes }));
      await relay.nextLine();
      return { full: changes.full, operations: {}, quarantined: [] };
    },
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}
