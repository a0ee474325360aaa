import type { Quarantined } from "../../proxy/data_plane.ts";
import type { DataPlaneDifference } from "../../proxy/data_plane_difference.ts";
import { serviceKey } from "../../proxy/service_port_name.ts";
import { countDifferences, type NodeDifference, type ServicePortNames } from "./node_difference.ts";

/** A value for `JSON.stringify()`; docs/diff.md tells its fields. */
export function differenceJson(difference: NodeDifference): unknown {
  const { mode, nodeName, families } = difference;
  return {
    node: nodeName,
    mode,
    differences: countDifferences(difference),
    families: families.map(({ family, services, differences, quarantined, repair }) => ({
      family,
      differences: differences.map((each) => withService(services, each)),
      quarantined: quarantined.map((each) => withService(services, each)),
      ...(repair && {
        repair: {
          found: repair.found.map((each) => withService(services, each)),
          operations: repair.operations,
        },
      }),
    })),
  };
}

function withService(
  services: ServicePortNames,
  { key, ...rest }: DataPlaneDifference | Quarantined,
) {
  if (key === undefined) return rest;
  const service = services.get(key);
  return { ...(service && { service: serviceKey(service.name) }), servicePort: key, ...rest };
}
