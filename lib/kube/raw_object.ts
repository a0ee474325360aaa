import { objectKey, type ObjectMeta } from "../api/kind.ts";
import { ProtobufObject } from "./protobuf/protobuf_object.ts";

/** Returns the metadata of a raw object, in JSON or protobuf, if any; bookmarks have no name. */
export function metadataOf(raw: unknown): Partial<ObjectMeta> {
  if (raw instanceof ProtobufObject) return raw.metadata();
  if (typeof raw !== "object" || raw === null || !("metadata" in raw)) return {};
  const { metadata } = raw;
  return typeof metadata === "object" && metadata !== null ? metadata as ObjectMeta : {};
}

/** Returns the key of a raw object, which may not be readable otherwise; `undefined` without a name. */
export function keyOf(raw: unknown): string | undefined {
  const metadata = metadataOf(raw);
  if (typeof metadata.name !== "string" || metadata.name === "") return undefined;
  return objectKey({ metadata: metadata as ObjectMeta });
}
