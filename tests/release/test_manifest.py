"""Parts of a manifest decided from public facts: the release before, the certificate's sums, signatures."""

import copy
import json
from fractions import Fraction

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from synth_core.errors import PublishError
from synth_core.privacy.budget import Mechanism, gaussian_for
from synth_core.release import certificate as certificates
from synth_core.release import signing
from synth_core.release.manifest import digest_of, previous_manifest

HALF = gaussian_for(Fraction(1, 2), sensitivity=Fraction(1), count=3)


def manifest_of(release, *, at, dataset="people", **more):
    return {
        "release": release,
        "dataset": dataset,
        "digest": release * 2,
        "provenance": {"published_at": at},
        **more,
    }


KEY = Ed25519PrivateKey.generate()


def publish(zone, manifest):
    publish_text(zone / manifest["release"], json.dumps(manifest))


def publish_text(folder, text):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.json").write_text(text)
    (folder / "manifest.sig").write_text(signing.signature(text.encode(), KEY))
    (folder / "signing-key.pem").write_text(signing.public_pem(KEY))


def test_the_release_before_is_the_newest_of_the_same_data_set(tmp_path):
    assert previous_manifest(tmp_path, dataset="people", release="r3") is None
    publish(tmp_path, manifest_of("r1", at="2026-01-01"))
    publish(tmp_path, manifest_of("r2", at="2026-03-01"))
    publish(tmp_path, manifest_of("r0", at="2026-02-01"))
    publish(tmp_path, manifest_of("other", at="2026-09-01", dataset="houses"))
    assert previous_manifest(tmp_path, dataset="people", release="r3")["release"] == "r2"


def test_a_published_release_keeps_the_one_it_was_compared_with(tmp_path):
    publish(tmp_path, manifest_of("r1", at="2026-01-01", previous=None))
    publish(tmp_path, manifest_of("r2", at="2026-02-01", previous={"release": "r1", "digest": "r1r1"}))
    publish(tmp_path, manifest_of("r3", at="2026-03-01", previous={"release": "gone", "digest": ""}))
    assert previous_manifest(tmp_path, dataset="people", release="r1") is None
    assert previous_manifest(tmp_path, dataset="people", release="r2")["release"] == "r1"
    assert previous_manifest(tmp_path, dataset="people", release="r3") is None


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"dataset": "people"}'])
def test_a_damaged_manifest_is_no_yardstick(tmp_path, text):
    publish_text(tmp_path / "r1", text)
    assert previous_manifest(tmp_path, dataset="people", release="r2") is None


def test_a_manifest_that_was_changed_or_lies_elsewhere_is_no_yardstick(tmp_path):
    """Before, one that had lost a key ended the next release in a traceback, after all was paid."""
    text = json.dumps(manifest_of("r1", at="2026-01-01"))
    publish_text(tmp_path / "r1", text)
    assert previous_manifest(tmp_path, dataset="people", release="r2") == json.loads(text)
    (tmp_path / "r1" / "manifest.json").write_text(text.replace("digest", "diges"))
    assert previous_manifest(tmp_path, dataset="people", release="r2") is None
    publish_text(tmp_path / "other", text.replace('"r1"', '"../r1"'))
    assert previous_manifest(tmp_path, dataset="people", release="r2") is None


def test_a_manifest_without_a_signature_was_never_published(tmp_path):
    publish(tmp_path, manifest_of("r1", at="2026-01-01"))
    (tmp_path / "r1" / "manifest.sig").unlink()
    assert previous_manifest(tmp_path, dataset="people", release="r2") is None


def test_the_digest_covers_all_but_the_provenance():
    manifest = manifest_of("r1", at="2026-01-01")
    assert digest_of(manifest) == digest_of({**manifest, "provenance": {}, "digest": ""})
    assert digest_of(manifest) != digest_of({**manifest, "dataset": "houses"})


@pytest.fixture
def pair():
    guarantee = {"rows_per_unit": 1, "steps": {"fit": {"mu2": str(HALF.mu2() * 2)}, "sample": {"mu2": "0"}}}
    spend = {"step": "fit", "stratum": None, "mechanism": HALF.to_json(), "mu2": str(HALF.mu2())}
    manifest = {"release": "r1", "dataset": "people", "guarantee": guarantee}
    return copy.deepcopy({**manifest, "spends": [spend, dict(spend)]}), manifest


def test_spends_that_add_up(pair):
    assert certificates.certificate_problems(*pair) == []


def test_spends_that_do_not_add_up(pair):
    certificate, manifest = pair
    del certificate["spends"][0]
    assert certificates.certificate_problems(certificate, manifest) == [
        "certificate.json: the spends of step 'fit' do not add up to the manifest's"
    ]


def test_a_price_that_is_not_the_mechanisms(pair):
    certificate, manifest = pair
    certificate["spends"][1]["mu2"] = str(HALF.mu2() / 2)
    assert "certificate.json: spend 2 is not the price of its mechanism" in certificates.certificate_problems(
        certificate, manifest
    )


def test_another_guarantee(pair):
    certificate, manifest = pair
    certificate["guarantee"]["rows_per_unit"] = 2
    assert certificates.certificate_problems(certificate, manifest) == [
        "certificate.json: states another guarantee than the manifest"
    ]


@pytest.mark.parametrize("spends", [None, [{}], [{"mechanism": {"name": "magic"}}], [3]])
def test_spends_that_cannot_be_read(pair, spends):
    certificate, manifest = pair
    certificate["spends"] = spends
    assert certificates.certificate_problems(certificate, manifest) == ["certificate.json: its spends cannot be read"]


def test_strata_are_not_added_up(pair):
    certificate, manifest = pair
    for part, spend in zip("ab", certificate["spends"], strict=True):
        spend["stratum"] = ["region", part]
    manifest["guarantee"]["steps"]["fit"]["mu2"] = certificate["guarantee"]["steps"]["fit"]["mu2"] = str(HALF.mu2())
    assert certificates.certificate_problems(certificate, manifest) == []


def test_the_dearest_stratum_counts_with_all_of_its_steps(pair):
    certificate, manifest = pair
    first, second = certificate["spends"]
    certificate["spends"] = [{**first, "stratum": ["region", "a"]}, {**second, "stratum": ["region", "b"]}]
    certificate["spends"].append({**second, "stratum": ["region", "b"]})
    assert certificates.certificate_problems(certificate, manifest) == []
    certificate["spends"].append({**second, "stratum": ["decade", "b"]})
    assert certificates.certificate_problems(certificate, manifest) == [
        "certificate.json: the spends of step 'fit' do not add up to the manifest's"
    ]


def test_an_epsilon_without_a_delta_is_that_of_all_spends(pair):
    """Two questions of a tenth each lose two tenths, and no less; one with Gaussian noise has no such epsilon."""
    certificate, manifest = pair
    laplace = Mechanism("discrete_laplace", Fraction(1), Fraction(10), 1)
    step = {"fit": {"mu2": str(laplace.mu2() * 2)}}
    for one in (manifest["guarantee"], certificate["guarantee"]):
        one.update(steps=step, pure_epsilon=0.2)
    for spend in certificate["spends"]:
        spend.update(mechanism=laplace.to_json(), mu2=str(laplace.mu2()))
    assert certificates.certificate_problems(certificate, manifest) == []
    smaller = "certificate.json: states a smaller epsilon without a delta than its spends add up to"
    manifest["guarantee"]["pure_epsilon"] = certificate["guarantee"]["pure_epsilon"] = 0.199999
    assert certificates.certificate_problems(certificate, manifest) == [smaller]
    manifest["guarantee"]["pure_epsilon"] = certificate["guarantee"]["pure_epsilon"] = 0.2
    certificate["spends"][1].update(mechanism=HALF.to_json(), mu2=str(HALF.mu2()))
    assert smaller in certificates.certificate_problems(certificate, manifest), "Gaussian noise needs a delta"


@pytest.mark.parametrize("stratum", [[], ["region"], 3])
def test_a_stratum_that_cannot_be_read(pair, stratum):
    certificate, manifest = pair
    certificate["spends"][0]["stratum"] = stratum
    assert certificates.certificate_problems(certificate, manifest) == ["certificate.json: its spends cannot be read"]


def test_a_signature_is_of_one_content_and_one_key(tmp_path):
    key = signing.private_key(tmp_path / "one.pem", create=True)
    assert (tmp_path / "one.pem").stat().st_mode & 0o077 == 0
    other = signing.private_key(tmp_path / "two.pem", create=True)
    signed = signing.signature(b"content", key)
    assert signing.is_signed_by(b"content", signed, signing.public_pem(key))
    assert not signing.is_signed_by(b"Content", signed, signing.public_pem(key))
    assert not signing.is_signed_by(b"content", signed, signing.public_pem(other))
    assert not signing.is_signed_by(b"content", "§", signing.public_pem(key))
    assert not signing.is_signed_by(b"content", signed, "no key")
    assert signing.fingerprint(signing.public_pem(key)) != signing.fingerprint(signing.public_pem(other))
    again = signing.private_key(tmp_path / "one.pem", create=True)
    assert signing.public_pem(again) == signing.public_pem(key)


def test_no_byte_of_signature_or_key_can_be_changed(tmp_path):
    key = signing.private_key(tmp_path / "one.pem", create=True)
    signed, pem = signing.signature(b"content", key), signing.public_pem(key)
    for bit in (1, 2, 32):
        for at, letter in enumerate(signed):
            changed = signed[:at] + chr(ord(letter) ^ bit) + signed[at + 1 :]
            assert not signing.is_signed_by(b"content", changed, pem), at
        for at, letter in enumerate(pem):
            changed = pem[:at] + chr(ord(letter) ^ bit) + pem[at + 1 :]
            assert not signing.is_signed_by(b"content", signed, changed), at


def rsa_key():
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def test_keys_that_cannot_sign_are_refused(tmp_path):
    with pytest.raises(PublishError, match="cannot be read"):
        signing.private_key(tmp_path / "missing.pem", create=False)
    with pytest.raises(PublishError, match="cannot be written"):
        signing.private_key(tmp_path / "nowhere" / "key.pem", create=True)
    (tmp_path / "text.pem").write_text("hello")
    with pytest.raises(PublishError, match="cannot be read"):
        signing.private_key(tmp_path / "text.pem", create=True)
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    (tmp_path / "rsa.pem").write_bytes(rsa_key().private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    with pytest.raises(PublishError, match="not an Ed25519 key"):
        signing.private_key(tmp_path / "rsa.pem", create=True)


def test_fingerprints_need_an_ed25519_key():
    with pytest.raises(ValueError, match="not a public key"):
        signing.fingerprint("hello")
    public = (
        rsa_key().public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    with pytest.raises(ValueError, match="not an Ed25519 key"):
        signing.fingerprint(public.decode())
