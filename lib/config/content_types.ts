import type { KubeProxyConfiguration } from "./configuration.ts";

/** Whether the API server may send objects in protobuf; otherwise it sends JSON. */
export function acceptsProtobuf(
  { acceptContentTypes, contentType }: Pick<
    KubeProxyConfiguration["clientConnection"],
    "acceptContentTypes" | "contentType"
  >,
): boolean {
  const types = acceptContentTypes === "" ? contentType : acceptContentTypes;
  return types.split(",").some((type) =>
    type.split(";")[0]!.trim().toLowerCase() === "application/vnd.kubernetes.protobuf"
  );
}
