import { assertEquals } from "@std/assert";
import { acceptsProtobuf } from "./configuration.ts";

const PROTOBUF = "application/vnd.kubernetes.protobuf";

for (
  const [acceptContentTypes, contentType, expected] of [
    ["", PROTOBUF, true],
    ["", "application/json", false],
    ["", "", false],
    ["application/json", PROTOBUF, false],
    [`application/json, ${PROTOBUF};q=0.9`, "application/json", true],
  ] as const
) {
  Deno.test(`acceptsProtobuf() is ${expected} for '${acceptContentTypes}' and '${contentType}'`, () => {
    assertEquals(acceptsProtobuf({ acceptContentTypes, contentType }), expected);
  });
}
