import type { RoutedService } from "../api/kinds/routed_service.ts";
import { tryParseIpAddress } from "../net/ip_address.ts";
import type { AddressAssignment } from "./address_allocator.ts";

/** A JSON merge patch for the `status` of a Service. */
export interface StatusPatch {
  /** The API server refuses the patch if the Service has changed since. */
  readonly metadata: { readonly resourceVersion?: string };
  readonly status: {
    readonly loadBalancer: { readonly ingress: readonly { readonly ip: string }[] };
  };
}

/**
 * Returns the patch that gives a Service its assignment; `undefined` if the status is right, or is
 * left alone. The order of addresses is no reason to write.
 */
export function statusPatchOf(
  { metadata, status }: RoutedService,
  { addresses }: AddressAssignment,
): StatusPatch | undefined {
  if (!addresses) return undefined;
  const current = new Set(
    status?.loadBalancer?.ingress?.map(({ ip }) => tryParseIpAddress(ip ?? "")) ?? [],
  );
  const isRight = current.size === addresses.length &&
    addresses.every((address) => current.has(address));
  if (isRight) return undefined;
  const { resourceVersion } = metadata;
  return {
    metadata: { ...(resourceVersion !== undefined && { resourceVersion }) },
    status: { loadBalancer: { ingress: addresses.map((ip) => ({ ip })) } },
  };
}
