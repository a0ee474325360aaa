/**
 * What a running proxy has open, where it serves by itself.
 *
 * @module
 */
import type { LoadedConfiguration } from "../../config/load.ts";
import type { ServicePortKey } from "../../proxy/service_port_name.ts";
import { requestStatus } from "../control/control_client.ts";
import type { PlannedNode } from "../offline/planned_node.ts";
import type { StatusReport } from "../status/status_report.ts";

/** The node with what its process says of its sockets; in modes of the kernel nobody is asked. */
export async function withServing(
  planned: PlannedNode,
  { controlSocket }: Pick<LoadedConfiguration["relay"], "controlSocket">,
): Promise<PlannedNode> {
  if (planned.mode !== "userspace") return planned;
  const { families } = await requestStatus(controlSocket);
  const { machine } = planned;
  return {
    ...planned,
    machine(family) {
      const status = families.find((each) => each.family === family);
      return { ...machine(family), ...(status && servingOf(status)) };
    },
  };
}

function servingOf({ services, quarantined }: StatusReport["families"][number]) {
  const serving = services.map(({ name, protocol, addresses }) => ({
    key: `${name}/${protocol}` as ServicePortKey,
    addresses,
  }));
  return { quarantined, serving };
}
