/**
 * Completes EndpointSlices and Endpoints of manifests: sets the defaults of an API server, and
 * refuses what it would refuse beyond single fields.
 *
 * @module
 */
import { ipFamilyOf, tryParseIpAddress } from "../../net/ip_address.ts";
import type { ManifestFieldProblem, ManifestReport } from "../kind.ts";
import { SERVICE_NAME_LABEL } from "../labels.ts";
import { isServableAddress, UNSERVABLE } from "../schema.ts";
import type { EndpointsManifest } from "./endpoints.ts";
import type { EndpointSliceManifest } from "./endpoint_slice.ts";

/** The label with which v1beta1 names the node of an endpoint. */
export const HOSTNAME_TOPOLOGY = "kubernetes.io/hostname";

/** Checks rules across fields and fills in the defaults. */
export function completeEndpointSlice(
  slice: EndpointSliceManifest,
  report: ManifestReport,
): EndpointSliceManifest {
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

function checkAddresses(
  { addressType, endpoints }: EndpointSliceManifest,
  report: ManifestReport,
): void {
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

/** Checks rules across fields and fills in the defaults. */
export function completeEndpoints(
  { metadata, subsets }: EndpointsManifest,
  report: ManifestReport,
): EndpointsManifest {
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
  path: ManifestFieldProblem["path"],
  report: ManifestReport,
): void {
  const seen = new Set<string>();
  for (const [index, { name }] of ports.entries()) {
    if (seen.has(name ?? "")) {
      const message = "is the name of an earlier port too: each port needs its own";
      report.error({ path: [...path, index, "name"], value: name ?? "", message });
    }
    seen.add(name ?? "");
  }
}
