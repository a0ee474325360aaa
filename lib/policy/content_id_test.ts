import { assertEquals } from "@std/assert";
import { contentId, sha256 } from "./content_id.ts";

function hex(text: string): string {
  return [...sha256(new TextEncoder().encode(text))]
    .map((word) => word.toString(16).padStart(8, "0")).join("");
}

Deno.test("sha256() is what FIPS 180-4 says", () => {
  assertEquals(hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  assertEquals(hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  assertEquals(
    hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
    "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
  );
  assertEquals(
    hex("a".repeat(1_000_000)),
    "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0",
  );
});

Deno.test("contentId() is the beginning of the hash in base 32", () => {
  assertEquals(contentId("abc"), "xj4bnp4pahh6uqkbidpf3lrceoyageyn".slice(0, 16));
});
