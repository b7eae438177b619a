"""Real architectures for architectures.py: each with random weights from a fixed seed, small where the package allows it.

MODELS maps a name to (package, make); make() returns (module, positional inputs as torch tensors). Nothing is downloaded.
"""
import torch

MODELS = {}


def model(name, package):
    def add(make):
        MODELS[name] = (package, make)
        return make

    return add


def image(size, channels=3, batch=1):
    return (torch.randn(batch, channels, size, size),)


def tokens(length=12, limit=90, batch=1):
    return torch.randint(3, limit, (batch, length))


# ---- vision: torchvision ----

def torchvision_model(name, size, kind="", **options):
    @model(f"torchvision/{name}", "torchvision")
    def make():
        import torchvision
        source = torchvision.models.segmentation if kind == "segmentation" else torchvision.models
        if kind == "segmentation":
            options.update(weights_backbone=None)
        return getattr(source, name)(weights=None, **options), image(size)


for name, size in [("alexnet", 224), ("vgg11_bn", 224), ("resnet18", 65), ("resnext50_32x4d", 64), ("wide_resnet50_2", 64),
                   ("squeezenet1_1", 67), ("densenet121", 64), ("mobilenet_v2", 65), ("mobilenet_v3_small", 64),
                   ("shufflenet_v2_x0_5", 64), ("mnasnet0_5", 64), ("efficientnet_b0", 64), ("efficientnet_v2_s", 64),
                   ("regnet_y_400mf", 64), ("regnet_x_400mf", 64), ("convnext_tiny", 64), ("swin_t", 64), ("swin_v2_t", 64)]:
    torchvision_model(name, size)
torchvision_model("googlenet", 64, init_weights=True, aux_logits=False)
torchvision_model("inception_v3", 96, init_weights=True, aux_logits=False)
torchvision_model("vit_b_32", 224)
torchvision_model("maxvit_t", 224)
for name in ["fcn_resnet50", "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large"]:
    torchvision_model(name, 65, kind="segmentation")


# ---- vision: timm ----

def timm_model(name, size, **options):
    @model(f"timm/{name}", "timm")
    def make():
        import timm
        return timm.create_model(name, pretrained=False, num_classes=10, **options), image(size)


for name, size in [("ghostnet_050", 64), ("tinynet_e", 64), ("mixnet_s", 64), ("repvgg_a0", 64), ("dla34", 64),
                   ("hrnet_w18_small", 64), ("res2net50_26w_4s", 64), ("resnest14d", 64), ("ecaresnet50t", 64),
                   ("mobileone_s0", 64), ("repvit_m0_9", 64), ("edgenext_xx_small", 64), ("poolformer_s12", 64),
                   ("efficientformer_l1", 224), ("mobilevit_xxs", 64), ("fastvit_t8", 64), ("hgnet_tiny", 64),
                   ("cspresnet50", 64), ("nfnet_l0", 64), ("lcnet_050", 64), ("mobilenetv4_conv_small", 64),
                   ("starnet_s1", 64), ("inception_next_atto", 64), ("pvt_v2_b0", 64)]:
    timm_model(name, size)
for name in ["deit_tiny_patch16_224", "mixer_s32_224", "resmlp_12_224", "gmlp_ti16_224", "coat_lite_tiny",
             "crossvit_tiny_240", "xcit_nano_12_p16_224", "pit_ti_224", "levit_128s", "twins_pcpvt_small",
             "visformer_tiny", "nest_tiny", "tiny_vit_5m_224", "volo_d1_224", "cait_xxs24_224"]:
    timm_model(name, 240 if "240" in name else 224)


# ---- text and audio: transformers ----

SMALL = dict(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37,
             max_position_embeddings=64)


class Returns(torch.nn.Module):
    """A model of transformers whose result is a plain tuple of tensors."""

    def __init__(self, inner, names):
        super().__init__()
        self.inner, self.names = inner, names

    def forward(self, *values):
        out = self.inner(**dict(zip(self.names, values)), return_dict=False)
        return tuple(t for t in out if isinstance(t, torch.Tensor))


def transformers_model(name, config, inputs, cls=None, **options):
    @model(f"transformers/{name}", "transformers")
    def make():
        import transformers
        settings = getattr(transformers, config)(**options)
        settings._attn_implementation = "eager"
        if hasattr(settings, "use_cache"):
            settings.use_cache = False
        inner = getattr(transformers, cls)(settings) if cls else transformers.AutoModel.from_config(settings)
        values = inputs()
        return Returns(inner, list(values)), tuple(values.values())


def text():
    return {"input_ids": tokens(), "attention_mask": torch.tensor([[1] * 10 + [0] * 2])}


for name, config in [("bert", "BertConfig"), ("roberta", "RobertaConfig"), ("electra", "ElectraConfig"), ("albert", "AlbertConfig"),
                     ("deberta_v2", "DebertaV2Config"), ("mpnet", "MPNetConfig"), ("roformer", "RoFormerConfig"),
                     ("convbert", "ConvBertConfig"), ("nystromformer", "NystromformerConfig"), ("camembert", "CamembertConfig"),
                     ("llama", "LlamaConfig"), ("mistral", "MistralConfig"), ("qwen2", "Qwen2Config"), ("qwen3", "Qwen3Config"),
                     ("gemma", "GemmaConfig"), ("phi", "PhiConfig"), ("stablelm", "StableLmConfig"), ("olmo", "OlmoConfig"),
                     ("granite", "GraniteConfig"), ("opt", "OPTConfig"), ("gpt_neox", "GPTNeoXConfig")]:
    extra = {"embedding_size": 32} if name in ("electra", "albert") else {}
    if name == "opt":
        extra = dict(ffn_dim=37, word_embed_proj_dim=32)
    if name == "gemma":
        extra = dict(num_key_value_heads=2, head_dim=8)
    if name in ("llama", "mistral", "qwen2", "qwen3"):
        extra = dict(num_key_value_heads=2)
    if name in ("phi", "stablelm", "olmo", "granite", "qwen2", "qwen3"):
        extra = {**extra, "pad_token_id": 0}
    if name == "roberta" or name == "camembert":
        extra = {"pad_token_id": 1}
    transformers_model(name, config, text, **{**SMALL, **extra})
transformers_model("distilbert", "DistilBertConfig", text, vocab_size=99, dim=32, n_layers=2, n_heads=4, hidden_dim=37)
transformers_model("gpt2", "GPT2Config", text, vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64)
transformers_model("gptj", "GPTJConfig", text, vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64, rotary_dim=4)
transformers_model("bloom", "BloomConfig", text, vocab_size=99, hidden_size=32, n_layer=2, n_head=4)
transformers_model("t5_encoder", "T5Config", text, cls="T5EncoderModel", vocab_size=99, d_model=32, d_kv=8, d_ff=37,
                   num_layers=2, num_heads=4)
transformers_model("bart", "BartConfig", lambda: {"input_ids": tokens(), "decoder_input_ids": tokens(7)}, vocab_size=99, d_model=32,
                   encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=37,
                   decoder_ffn_dim=37, max_position_embeddings=64)
transformers_model("t5", "T5Config", lambda: {"input_ids": tokens(), "decoder_input_ids": tokens(7)}, vocab_size=99, d_model=32, d_kv=8,
                   d_ff=37, num_layers=2, num_heads=4)
transformers_model("clip_text", "CLIPTextConfig", text, **SMALL)
transformers_model("clip_vision", "CLIPVisionConfig", lambda: {"pixel_values": torch.randn(1, 3, 32, 32)}, hidden_size=32,
                   intermediate_size=37, num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=8)
VISION = dict(hidden_size=32, intermediate_size=37, num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=8)
for name, config in [("vit", "ViTConfig"), ("deit", "DeiTConfig"), ("dinov2", "Dinov2Config"), ("siglip_vision", "SiglipVisionConfig"),
                     ("yolos", "YolosConfig")]:
    extra = {"num_detection_tokens": 5, "image_size": [32, 32]} if name == "yolos" else {}
    transformers_model(name, config, lambda: {"pixel_values": torch.randn(1, 3, 32, 32)}, **{**VISION, **extra})
transformers_model("segformer", "SegformerConfig", lambda: {"pixel_values": torch.randn(1, 3, 64, 64)},
                   hidden_sizes=[16, 16, 32, 32], depths=[1, 1, 1, 1], num_attention_heads=[1, 1, 2, 2], decoder_hidden_size=16)
transformers_model("whisper_encoder_decoder", "WhisperConfig",
                   lambda: {"input_features": torch.randn(1, 16, 60), "decoder_input_ids": tokens(5)}, vocab_size=99, d_model=32,
                   encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=37,
                   decoder_ffn_dim=37, num_mel_bins=16, max_source_positions=30, max_target_positions=20, pad_token_id=0,
                   bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)
for name, config in [("wav2vec2", "Wav2Vec2Config"), ("hubert", "HubertConfig")]:
    transformers_model(name, config, lambda: {"input_values": torch.randn(1, 1600)}, hidden_size=32, num_hidden_layers=2,
                       num_attention_heads=4, intermediate_size=37, conv_dim=[32, 32, 32], conv_stride=[5, 2, 2],
                       conv_kernel=[10, 3, 3], num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2)
transformers_model("audio_spectrogram", "ASTConfig", lambda: {"input_values": torch.randn(1, 40, 16)}, hidden_size=32,
                   num_hidden_layers=2, num_attention_heads=4, intermediate_size=37, patch_size=4, max_length=40, num_mel_bins=16)


class DecoderStep(torch.nn.Module):
    """One step of a decoder whose cache of keys and values goes in and out."""

    def __init__(self, inner, layers):
        super().__init__()
        self.inner, self.layers = inner, layers

    def forward(self, input_ids, attention_mask, *past):
        import transformers
        cache = transformers.DynamicCache([(past[2 * i], past[2 * i + 1]) for i in range(self.layers)])
        out = self.inner(input_ids=input_ids, attention_mask=attention_mask, past_key_values=cache, use_cache=True)
        result = [out.logits]
        for layer in out.past_key_values.layers:
            result += [layer.keys, layer.values]
        return tuple(result)


def decoder_step(name, config, heads, width, **options):
    @model(f"transformers/{name}_with_cache", "transformers")
    def make():
        import transformers
        settings = getattr(transformers, config)(**options)
        settings._attn_implementation = "eager"
        inner = transformers.AutoModelForCausalLM.from_config(settings)
        past = [torch.randn(1, heads, 9, width) for _ in range(4)]
        return DecoderStep(inner, 2), (tokens(1), torch.ones(1, 10, dtype=torch.int64), *past)


decoder_step("llama", "LlamaConfig", 2, 8, **SMALL, num_key_value_heads=2)
decoder_step("gpt2", "GPT2Config", 4, 8, vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64)
decoder_step("qwen2", "Qwen2Config", 2, 8, **SMALL, num_key_value_heads=2, pad_token_id=0)


# ---- recurrent, diffusion ----

@model("torch/lstm_tagger", "torch")
def _():
    class Tagger(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(99, 16)
            self.lstm = torch.nn.LSTM(16, 24, num_layers=2, bidirectional=True, batch_first=True)
            self.head = torch.nn.Linear(48, 7)

        def forward(self, ids):
            return self.head(self.lstm(self.embed(ids))[0])

    return Tagger(), (tokens(9),)


@model("torch/gru_crnn", "torch")
def _():
    class Crnn(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = torch.nn.Sequential(torch.nn.Conv2d(1, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2))
            self.gru = torch.nn.GRU(64, 16, bidirectional=True, batch_first=True)
            self.head = torch.nn.Linear(32, 11)

        def forward(self, x):
            f = self.conv(x)
            return self.head(self.gru(f.permute(0, 3, 1, 2).flatten(2))[0])

    return Crnn(), (torch.randn(1, 1, 16, 40),)


@model("torch/transformer", "torch")
def _():
    class Pair(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Transformer(32, 4, 2, 2, 48, batch_first=True)

        def forward(self, a, b):
            return self.net(a, b)

    return Pair(), (torch.randn(1, 9, 32), torch.randn(1, 5, 32))


@model("diffusers/unet", "diffusers")
def _():
    import diffusers
    net = diffusers.UNet2DConditionModel(sample_size=16, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(32, 64),
                                         down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
                                         up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), cross_attention_dim=32,
                                         attention_head_dim=8, norm_num_groups=8)

    class Step(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x, t, context):
            return self.net(x, t, context, return_dict=False)[0]

    return Step(), (torch.randn(1, 4, 16, 16), torch.tensor([7]), torch.randn(1, 6, 32))


@model("diffusers/vae_decoder", "diffusers")
def _():
    import diffusers
    net = diffusers.AutoencoderKL(in_channels=3, out_channels=3, down_block_types=("DownEncoderBlock2D",) * 2,
                                  up_block_types=("UpDecoderBlock2D",) * 2, block_out_channels=(16, 32), layers_per_block=1,
                                  latent_channels=4, norm_num_groups=8, sample_size=32)

    class Decoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, z):
            return self.net.decode(z, return_dict=False)[0]

    return Decoder(), (torch.randn(1, 4, 8, 8),)


@model("diffusers/transformer_block", "diffusers")
def _():
    import diffusers
    net = diffusers.DiTTransformer2DModel(num_attention_heads=2, attention_head_dim=16, in_channels=4, out_channels=4, num_layers=2,
                                          sample_size=8, patch_size=2, num_embeds_ada_norm=10, norm_num_groups=4)

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x, t, label):
            return self.net(x, timestep=t, class_labels=label, return_dict=False)[0]

    return Block(), (torch.randn(1, 4, 8, 8), torch.tensor([3]), torch.tensor([4]))


# ---- detection: what comes before the suppression of boxes, and one whole detector ----


class Tensors(torch.nn.Module):
    """Runs `forward` of a detector's parts, and returns all tensors of its dictionaries and lists."""

    def __init__(self, *parts):
        super().__init__()
        self.parts = torch.nn.ModuleList(parts)

    def forward(self, x):
        backbone, head = self.parts
        features = list(backbone(x).values())
        return tuple(head(features).values())


def detector_heads(name, size, **options):
    @model(f"torchvision/{name}_heads", "torchvision")
    def make():
        import torchvision
        net = getattr(torchvision.models.detection, name)(weights=None, weights_backbone=None, **options)
        return Tensors(net.backbone, net.head), image(size)


detector_heads("retinanet_resnet50_fpn", 96, num_classes=7)
detector_heads("fcos_resnet50_fpn", 96, num_classes=7)
detector_heads("ssdlite320_mobilenet_v3_large", 320, num_classes=7)


@model("torchvision/fasterrcnn_mobilenet_v3_large_320_fpn", "torchvision")
def _():
    import torchvision
    net = torchvision.models.detection.fasterrcnn_mobilenet_v3_large_320_fpn(weights=None, weights_backbone=None, num_classes=7)

    class Detector(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x):
            found = self.net([x[0]])[0]
            return found["boxes"], found["scores"], found["labels"]

    return Detector(), image(320)


transformers_model("detr", "DetrConfig", lambda: {"pixel_values": torch.randn(1, 3, 64, 64)}, cls="DetrForObjectDetection", d_model=32,
                   encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=37,
                   decoder_ffn_dim=37, num_queries=9, use_timm_backbone=False, use_pretrained_backbone=False,
                   backbone_config=dict(model_type="resnet", embedding_size=16, hidden_sizes=[16, 24, 32, 32], depths=[1, 1, 1, 1],
                                        layer_type="basic", out_features=["stage4"]))


# ---- more audio ----

for name, config in [("sew", "SEWConfig"), ("data2vec_audio", "Data2VecAudioConfig"), ("unispeech", "UniSpeechConfig")]:
    transformers_model(name, config, lambda: {"input_values": torch.randn(1, 1600)}, hidden_size=32, num_hidden_layers=2,
                       num_attention_heads=4, intermediate_size=37, conv_dim=[32, 32, 32], conv_stride=[5, 2, 2],
                       conv_kernel=[10, 3, 3], num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2)


@model("transformers/encodec_decoder", "transformers")
def _():
    import transformers
    net = transformers.EncodecModel(transformers.EncodecConfig(num_filters=8, hidden_size=16, upsampling_ratios=[4, 2], codebook_dim=16,
                                                               codebook_size=32, use_causal_conv=False))
    return net.decoder, (torch.randn(1, 16, 20),)
