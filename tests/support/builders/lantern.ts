/**
 * A kind that no release has.
 *
 * @module
 */
import * as v from "valibot";
import type { RawObject } from "../../conformance/server.ts";
import { defineKind } from "../../../lib/api/kind.ts";
import {
  dnsLabel,
  fields,
  list,
  metadata,
  portNumber,
  sharedText,
} from "../../../lib/api/schema.ts";

/** Lanterns. */
export const LANTERN = defineKind({
  kind: "Lantern",
  group: "lights.example.org",
  versions: ["v2", "v1"],
  plural: "lanterns",
  namespaced: true,
  schema: fields({
    metadata: metadata(dnsLabel, {
      labels: ["colour"],
      annotations: ["height"],
      secret: ["owner"],
      extra: {},
    }),
    spec: fields({
      street: sharedText,
      ports: list(fields({ port: portNumber(1), comment: v.nullish(sharedText) })),
    }, { unread: "lamp" }),
  }, { unread: "apiVersion kind" }),
  complete: (lantern, report) => {
    if (lantern.spec.ports?.length === 0) {
      report.error({ path: ["spec", "ports"], message: "has to hold at least one port" });
    }
    return { ...lantern, spec: { ...lantern.spec, ports: lantern.spec.ports ?? [{ port: 80 }] } };
  },
});

/** A lantern of namespace park, as the API has it. */
export function lantern(name: string, spec: Record<string, unknown>, labels = {}): RawObject {
  const owner = { height: "3", owner: "s3cret", other: "x" };
  return {
    apiVersion: "lights.example.org/v2",
    kind: "Lantern",
    metadata: { name, namespace: "park", labels: { ...labels, other: "x" }, annotations: owner },
    spec: { lamp: "x", ...spec },
  };
}
