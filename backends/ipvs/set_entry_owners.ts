/**
 * Whose the entries of sets are. Pure.
 *
 * @module
 */
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { setName } from "./ipset_table.ts";
import type { IpvsLayout } from "./layout.ts";
import { renderService } from "./render_service.ts";
import type { ServiceFront, SetEntry } from "./service_front.ts";

/** ServicePorts between two pauses. */
const SLICE_SIZE = 64;

/** By set and entry; of several ServicePorts that need one, the first. In short steps. */
export function* ownersOfEntries(
  layout: IpvsLayout,
): Generator<void, ReadonlyMap<string, ServicePortKey>> {
  const owners = new Map<string, ServicePortKey>();
  let seen = 0;
  for (const key of layout.keys) {
    if (++seen % SLICE_SIZE === 0) yield;
    const plan = layout.plan(key);
    if (plan === undefined) continue;
    const { entries, fronts } = renderService(plan, layout);
    const ours = fronts.filter(({ server }) => layout.server(server.key)?.owner === key);
    const all = [...entries, ...ours.flatMap((front) => [...front.entries, ...boundEntry(front)])];
    for (const [id, entry] of all) {
      const name = `${setName(id, layout.options.family)} ${entry}`;
      if (!owners.has(name)) owners.set(name, key);
    }
  }
  return owners;
}

function boundEntry({ bound }: ServiceFront): readonly SetEntry[] {
  return bound === undefined ? [] : [["IPVS-IPS", bound]];
}
