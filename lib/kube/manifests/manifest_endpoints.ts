/**
 * EndpointSlices and Endpoints from manifests: what an API server would refuse, and what it would fill in.
 *
 * @module
 */
import { SERVICE_NAME_LABEL } from "../../api/service_name_label.ts";
import { ipFamilyOf, tryParseIpAddress } from "../../net/ip_address.ts";
import type { FieldPath } from "./manifest_problem.ts";
import type { ObjectReport } from "./manifest_report.ts";
import { type CheckedManifest, isServableAddress, UNSERVABLE } from "./manifest_schema.ts";

const HOSTNAME_TOPOLOGY = "kubernetes.io/hostname";

type CheckedSlice = CheckedManifest<"EndpointSlice">;
type CheckedEndpoints = CheckedManifest<"Endpoints">;

/** Checks what no single field can tell, and fills in the defaults. */
export function completeEndpointSlice(slice: CheckedSlice, report: ObjectReport): CheckedSlice {
  const { metadata, addressType } = slice;
  if (!metadata.labels?.[SERVICE_NAME_LABEL]) {
    const message = "is missing: it names the Service; without it the slice belongs to none";
    report.warn({ path: ["metadata", "labels", SERVICE_NAME_LABEL], message });
  }
  checkAddresses(slice, report);
  checkPortNames(slice.ports ?? [], ["ports"], report);
  return {
    metadata,
    addressType,
    endpoints: (slice.endpoints ?? []).map(({ topology, nodeName, ...endpoint }) => ({
      ...endpoint,
      nodeName: nodeName ?? topology?.[HOSTNAME_TOPOLOGY],
    })),
    ports: (slice.ports ?? []).map(({ name, protocol, port }) => ({
      name: name ?? "",
      protocol: protocol ?? "TCP",
      port,
    })),
  };
}

function checkAddresses({ addressType, endpoints }: CheckedSlice, report: ObjectReport): void {
  if (addressType === "FQDN") return;
  for (const [index, { addresses }] of (endpoints ?? []).entries()) {
    for (const [at, text] of addresses.entries()) {
      const address = tryParseIpAddress(text);
      const path = ["endpoints", index, "addresses", at];
      if (!isServableAddress(address)) {
        report.error({ path, value: text, message: UNSERVABLE });
      } else if (address !== undefined && ipFamilyOf(address) !== addressType) {
        const message = `has to be of the family ${addressType}, which addressType gives`;
        report.error({ path, value: text, message });
      }
    }
  }
}

/** Checks what no single field can tell, and fills in the defaults. */
export function completeEndpoints(
  { metadata, subsets }: CheckedEndpoints,
  report: ObjectReport,
): CheckedEndpoints {
  return {
    metadata,
    subsets: (subsets ?? []).map(({ addresses, notReadyAddresses, ports }, index) => {
      checkPortNames(ports ?? [], ["subsets", index, "ports"], report);
      return {
        addresses: addresses ?? undefined,
        notReadyAddresses: notReadyAddresses ?? undefined,
        ports: (ports ?? []).map(({ protocol, ...port }) => ({
          ...port,
          protocol: protocol ?? "TCP",
        })),
      };
    }),
  };
}

function checkPortNames(
  ports: readonly { readonly name?: string | null | undefined }[],
  path: FieldPath,
  report: ObjectReport,
): void {
  const seen = new Set<string>();
  for (const [index, { name }] of ports.entries()) {
    if (seen.has(name ?? "")) {
      const message = "stands here for the second time: each port has a name of its own";
      report.error({ path: [...path, index, "name"], value: name ?? "", message });
    }
    seen.add(name ?? "");
  }
}
