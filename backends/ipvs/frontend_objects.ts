import type { IpAddress, IpFamily } from "../../lib/net/ip_address.ts";
import { addressLine } from "../iproute/ip_text.ts";
import { FROM_CLUSTER } from "./base_rules.ts";
import { DEVICE } from "./diff.ts";
import { creation } from "./diff_servers.ts";
import { renderOperations } from "./ipvs_operation.ts";
import { type SetId, setName } from "./ipset_table.ts";
import type { ServiceFrontend } from "./service_frontend.ts";
import { describeServer } from "./virtual_server.ts";

/** An object of the kernel; `text` is the line that its tool takes. */
interface KernelObject {
  readonly id: string;
  readonly text: string;
}

/** The objects of a frontend in the order in which a packet meets them. */
export function* objectsOf(frontend: ServiceFrontend, family: IpFamily): Generator<KernelObject> {
  const { bound, entries, rule } = frontend;
  for (const [set, entry] of entries) yield entryObject(set, { entry, family });
  if (rule !== undefined) {
    yield { id: `rule nat ${FROM_CLUSTER} ${rule}`, text: `-A ${FROM_CLUSTER} ${rule}` };
  }
  if (bound !== undefined) yield* addressObjects(bound, family);
  yield* serverObjects(frontend);
}

/** The address of a frontend on the device, and the entry that closes its other ports. */
export function* addressObjects(address: IpAddress, family: IpFamily): Generator<KernelObject> {
  yield { id: `address ${address}`, text: addressLine("replace", { address, device: DEVICE }) };
  yield entryObject("IPVS-IPS", { entry: address, family });
}

function* serverObjects(
  { endpoints, server }: Pick<ServiceFrontend, "endpoints" | "server">,
): Generator<KernelObject> {
  const at = describeServer(server.key);
  const [first = "", ...reals] = renderOperations(creation({ server, endpoints }));
  yield { id: `virtual server ${at}`, text: first };
  for (const [index, text] of reals.entries()) {
    yield { id: `real server ${at} ${endpoints[index]?.key}`, text };
  }
}

/** An entry of a set. */
export function entryObject(
  set: SetId,
  { entry, family }: { readonly entry: string; readonly family: IpFamily },
): KernelObject {
  const name = setName(set, family);
  return { id: `ip set entry ${name} ${entry}`, text: `add ${name} ${entry}` };
}
