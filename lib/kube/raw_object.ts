import type { ObjectMeta } from "../api/kind.ts";
import { ProtobufObject } from "./protobuf/protobuf_object.ts";

/** Returns the metadata of a raw object, in JSON or protobuf, if any; bookmarks have no name. */
export function metadataOf(raw: unknown): Partial<ObjectMeta> {
  if (raw instanceof ProtobufObject) return raw.metadata();
  if (typeof raw !== "object" || raw === null || !("metadata" in raw)) return {};
  const { metadata } = raw;
  return typeof metadata === "object" && metadata !== null ? metadata as ObjectMeta : {};
}
